"""Sort photographs that are named by their WordNet noun into class folders: animal, and everything else.

    python benchmarks/photographs.py sample.tar pictures     # n01440764_tench.JPEG and so on
    lottery data prepare pictures shards

For samples of ImageNet with one picture of a noun, too few for a class of its own. WordNet numbers nouns by subject:
the animals of ImageNet come first. Every fifth picture in the order of names goes to val.
"""

import argparse
import tarfile
from pathlib import Path

ANIMALS_END = "n02660000"  # behind n02655020 (puffer) and before n02666196 (abacus)


def sort(source: Path, dest: Path) -> dict[str, int]:
    """Write the JPEGs of a tar file to train/CLASS and val/CLASS below dest; return the number in each folder."""
    counts: dict[str, int] = {}
    with tarfile.open(source) as tar:
        pictures = sorted((one for one in tar if one.name.endswith(".JPEG")), key=lambda one: Path(one.name).name)
        for i, picture in enumerate(pictures):
            name = Path(picture.name).name
            kind = "animal" if name < ANIMALS_END else "other"
            folder = f"{'val' if i % 5 == 0 else 'train'}/{kind}"
            (dest / folder).mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(picture)
            assert content, f"{picture.name} is no file"
            (dest / folder / name).write_bytes(content.read())
            counts[folder] = counts.get(folder, 0) + 1
    return counts


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("source", type=Path)
    asked.add_argument("dest", type=Path)
    for folder, count in sort(**vars(asked.parse_args())).items():
        print(f"{folder}: {count}")
