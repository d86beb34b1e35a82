"""What pyproject.toml cannot say: every package below the plug-in folders, under the one name."""

from setuptools import find_packages, setup

FOLDERS = ("methods", "protocols", "reports")

packages = find_packages(include=["fscil_bench", "fscil_bench.*"])
for folder in FOLDERS:
    packages += [f"fscil_bench.{folder}"]
    packages += [f"fscil_bench.{folder}.{name}" for name in find_packages(folder)]

setup(
    packages=packages,
    package_dir={"fscil_bench": "fscil_bench"} | {f"fscil_bench.{name}": name for name in FOLDERS},
)
