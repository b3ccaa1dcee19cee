"""`python -m torch_addmm_tc layout`: how a tile lies across the banks of shared memory, and what each access to it costs."""

from torch_addmm_tc.tools.banks import LAYOUTS, Layout

BANK_GROUPS = 8


def add_command(commands):
    about = "how a tile lies across the banks of shared memory"
    parser = commands.add_parser("layout", help=about, description=f"Shows {about}, and what each access to it costs.")
    parser.add_argument(
        "name", nargs="?", metavar="NAME", choices=LAYOUTS, help="one of " + ", ".join(LAYOUTS) + "; default: lists them"
    )
    parser.add_argument("--png", metavar="FILE", help="also draw the bank map (needs matplotlib)")
    parser.set_defaults(run=lambda options: run(options, parser))


def run(options, parser) -> int:
    if options.name is None:
        if options.png:
            parser.error("--png needs a NAME")
        for name, (about, _) in LAYOUTS.items():
            print(f"{name:<10}{about}")
        return 0
    about, layouts = LAYOUTS[options.name]
    if options.png:
        try:
            draw(options.name, layouts, options.png)
        except ImportError:
            parser.error("--png needs matplotlib, which comes with the extra 'bench'; run 'pip install matplotlib'")
        except (OSError, ValueError) as error:  # no such folder, or no such format
            parser.error(f"--png: {error}")
    print(f"{options.name}: {about}")
    print("Maps: the bank group, four banks, of each 16-byte chunk. Tables: cycles per phase, 1 being conflict-free.")
    for layout in layouts:
        print(f"\n{layout.name}\n{bank_map(layout)}\n\n{access_table(layout)}")
    return 0


def lines_shown(layout: Layout) -> int:
    """Enough lines to see the pattern: 8, or 16 of those so short that several share the 128 bytes of all banks."""
    return 8 if layout.chunks >= BANK_GROUPS else 16


def bank_map(layout: Layout) -> str:
    """A row per line and a column per 16-byte chunk, holding the bank group (four banks) that the chunk lies in."""
    rows = [("chunk", range(layout.chunks))]
    rows += [(f"line {line}", [layout.group(line, c) for c in range(layout.chunks)]) for line in range(lines_shown(layout))]
    return "\n".join(f"{label:<8}" + "".join(f"{x:3}" for x in row) for label, row in rows)


def access_table(layout: Layout) -> str:
    """Cycles per phase (1 is conflict-free) for each access of the whole tile."""
    lines = [f"{'access':<36}{'bytes':>5}{'phases':>8}{'worst':>7}{'average':>9}{'conflicts':>11}"]
    for x in layout.accesses:
        lines.append(f"{x.name:<36}{x.width:>5}{len(x.degrees):>8}{x.worst:>7}{x.average:>9.2f}{x.conflicts:>11}")
    return "\n".join(lines)


def draw(title: str, layouts, path: str):
    """The bank maps as an image. Raises ImportError without matplotlib, ValueError for an unknown format, OSError."""
    from matplotlib.figure import Figure

    shape = [(lines_shown(x), x.chunks) for x in layouts]
    height = sum(lines + 3 for lines, _ in shape) / 4
    figure = Figure(figsize=(max(6, max(chunks for _, chunks in shape) / 3), height), layout="constrained")
    figure.suptitle(f"{title}: bank group (four banks) of each 16-byte chunk")
    panels = figure.subplots(len(layouts), squeeze=False, height_ratios=[lines for lines, _ in shape])[:, 0]
    for panel, layout, (lines, chunks) in zip(panels, layouts, shape):
        groups = [[layout.group(line, chunk) for chunk in range(chunks)] for line in range(lines)]
        panel.imshow(groups, cmap="Set3", vmin=0, vmax=11, aspect="auto")
        for line, row in enumerate(groups):
            for chunk, group in enumerate(row):
                panel.text(chunk, line, group, ha="center", va="center", fontsize=7)
        panel.set(title=layout.name, xlabel="chunk", ylabel="line", xticks=range(chunks), yticks=range(lines))
        panel.tick_params(labelsize=6)
    figure.savefig(path, dpi=150)
