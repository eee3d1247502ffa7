//! Real databases of the engine, written by Windows: those that the tests of dissect.esedb come with, from its source
//! on PyPI; and libesedb's reader for Python, which reads what the esedbexport of Debian is too old for. They stay
//! under the target folder; nothing of them is part of this repository.

use crate::step;
use anyhow::Result;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Fixed, so that a verdict does not change with the day.
const LIBESEDB: &str = "libesedb-python==20260704";
/// Folder of the databases, under that of the judges.
const FOLDER: &str = "ese-files";
/// Number of databases that the package holds.
const FILES: usize = 10;

/// Takes them out of the source's archive.
const UNPACK: &str = r#"
import gzip, os, sys, tarfile
archive, folder = sys.argv[1:]
with tarfile.open(archive) as source:
    for member in source.getmembers():
        name = os.path.basename(member.name)
        if "/tests/_data/" in member.name and name.endswith(".gz"):
            with open(os.path.join(folder, name[:-3]), "wb") as file:
                file.write(gzip.decompress(source.extractfile(member).read()))
"#;

/// The folder, if they are all there.
pub fn find(judges: &Path) -> Option<PathBuf> {
    let folder = judges.join(FOLDER);
    let count = folder.read_dir().ok()?.count();
    (count == FILES).then_some(folder)
}

/// Fetches them with the Python of the judges; `package` is the version whose source has them.
pub fn fetch(judges: &Path, package: &str) -> Result<()> {
    let python = judges.join("venv").join("bin").join("python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", LIBESEDB]);
    step::run(&format!("pip install {LIBESEDB}"), &mut pip)?;
    let (work, folder) = (judges.join("ese-files.work"), judges.join(FOLDER));
    for path in [&work, &folder] {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        fs::create_dir_all(path)?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-binary", ":all:", "--dest"]).arg(&work).arg(package);
    step::run(&format!("pip download {package}"), &mut pip)?;
    for entry in work.read_dir()? {
        let archive = entry?.path();
        step::run(
            "unpack its databases",
            Command::new(&python).args(["-c", UNPACK]).arg(archive).arg(&folder),
        )?;
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}
