"""`python -m torch_addmm_tc layout` shows a tile's shared-memory banks and the cycles of each access to the tile."""

from torch_addmm_tc.tools.banks import LAYOUTS, Layout

BANK_GROUPS = 8  # of four banks, 16 bytes, each


def add_command(commands):
    """Add `layout` to the command line's subparsers."""
    about = "show a tile's shared-memory banks and the cycles of each access"
    parser = commands.add_parser("layout", help=about, description=about.capitalize() + ".")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        choices=LAYOUTS,
        help="one of " + ", ".join(LAYOUTS) + "; without NAME the command lists the layouts",
    )
    parser.add_argument("--png", metavar="FILE", help="also draw the bank map to FILE (needs matplotlib)")
    parser.set_defaults(run=lambda options: run(options, parser))


def run(options, parser) -> int:
    """Print the layout that `options` name, or the list of layouts. Return the exit code."""
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
        except (OSError, ValueError) as error:  # the folder or the image format does not exist
            parser.error(f"--png: {error}")
    print(f"{options.name}: {about}")
    print("Each map shows the bank group (four banks) of every 16-byte vector.")
    print("Each table counts the cycles per phase. A phase of 1 cycle is free of conflicts.")
    for layout in layouts:
        print(f"\n{layout.name}\n{bank_map(layout)}\n\n{access_table(layout)}")
    return 0


def rows_shown(layout: Layout) -> int:
    """Return how many rows show the pattern: 8, or 16 if a row is shorter than the 128 bytes of all banks."""
    return 8 if layout.vectors >= BANK_GROUPS else 16


def bank_map(layout: Layout) -> str:
    """Return the tile's map as text. Each cell is the bank group (four banks) of one 16-byte vector."""
    table = [("vector", range(layout.vectors))]
    table += [(f"row {row}", [layout.group(row, v) for v in range(layout.vectors)]) for row in range(rows_shown(layout))]
    return "\n".join(f"{label:<8}" + "".join(f"{x:3}" for x in values) for label, values in table)


def access_table(layout: Layout) -> str:
    """Return a text table of the cycles per phase, with a line for each access to the tile."""
    lines = [f"{'access':<36}{'bytes':>5}{'phases':>8}{'worst':>7}{'average':>9}{'conflicts':>11}"]
    for x in layout.accesses:
        lines.append(f"{x.name:<36}{x.width:>5}{len(x.degrees):>8}{x.worst:>7}{x.average:>9.2f}{x.conflicts:>11}")
    return "\n".join(lines)


def draw(title: str, layouts, path: str):
    """Draw the bank maps of `layouts` to an image.

    Args:
        title: the image's title.
        layouts: list of Layout.
        path: the image's file name. The extension decides the format.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if matplotlib does not know the format.
        OSError: if the file cannot be written.
    """
    from matplotlib.figure import Figure

    shape = [(rows_shown(x), x.vectors) for x in layouts]
    height = sum(rows + 3 for rows, _ in shape) / 4
    figure = Figure(figsize=(max(6, max(vectors for _, vectors in shape) / 3), height), layout="constrained")
    figure.suptitle(f"{title}: bank group (four banks) of each 16-byte vector")
    panels = figure.subplots(len(layouts), squeeze=False, height_ratios=[rows for rows, _ in shape])[:, 0]
    for panel, layout, (rows, vectors) in zip(panels, layouts, shape):
        groups = [[layout.group(row, vector) for vector in range(vectors)] for row in range(rows)]
        panel.imshow(groups, cmap="Set3", vmin=0, vmax=11, aspect="auto")
        for row, values in enumerate(groups):
            for vector, group in enumerate(values):
                panel.text(vector, row, group, ha="center", va="center", fontsize=7)
        panel.set(title=layout.name, xlabel="vector", ylabel="row", xticks=range(vectors), yticks=range(rows))
        panel.tick_params(labelsize=6)
    figure.savefig(path, dpi=150)
