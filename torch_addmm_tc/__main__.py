"""The command line of torch_addmm_tc.

Without a command it runs the self-check: it shows the environment, runs real layer shapes, checks each result against float64
and times it. The exit code is 1 if a result is outside its error bound.
"""

import argparse
import sys

from torch_addmm_tc.tools import check_invariance, demo, explain, layout, tune


def main(argv=None) -> int:
    """Run the command line.

    Args:
        argv: list of str; sys.argv[1:] by default.

    Returns:
        The process's exit code.

    Raises:
        SystemExit: with code 2, if an argument is not accepted.
    """
    parser = argparse.ArgumentParser(prog="python -m torch_addmm_tc", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    commands = parser.add_subparsers(title="commands", dest="command")
    for module in (explain, layout, tune, check_invariance):
        module.add_command(commands)
    options = parser.parse_args(argv)
    if not options.command:
        return demo.run(options.json)
    if options.json:
        parser.error(f"--json is not for {options.command}; it is accepted without a command")
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
