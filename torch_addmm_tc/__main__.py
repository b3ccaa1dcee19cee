"""Without a command: shows the environment, then runs real layer shapes, checked against float64 and timed.

Exits with 1 if any result is outside its error bound, so it doubles as a self-check after installing.
"""

import argparse
import sys

from torch_addmm_tc.tools import demo, explain, layout


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m torch_addmm_tc", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    commands = parser.add_subparsers(title="commands", dest="command")
    for module in (explain, layout):
        module.add_command(commands)
    options = parser.parse_args(argv)
    if not options.command:
        return demo.run(options.json)
    if options.json:
        parser.error(f"--json is not for {options.command}")
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
