//! A container image of the package's files, and of the libraries that the program loads.

use super::is_here;
use crate::step;
use anyhow::{Context, Result, bail};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const IMAGE: &str = "localhost/spindle:latest";
/// The user in the image, by number: an image from scratch has no other way to know one.
const USER: u32 = 10001;

pub fn build(package: &Path, target: &Path, is_judged: bool) -> Result<()> {
    let folder = target.join("release/package/container");
    let rootfs = make_rootfs(package, &folder)?;
    // By its own loader and libraries alone: what is missing is noticed here.
    let version = step::output(Command::new("chroot").arg(&rootfs).args(["/usr/bin/spindle", "--version"]))
        .context("the program does not start in the folder of the image; this needs root")?;
    println!("in a root of its own: {}", version.trim());
    if !is_here("buildah", "buildah") {
        return Ok(());
    }
    let file = step::workspace_root().join("packaging/container/Containerfile");
    let storage = folder.join("storage");
    let buildah = || {
        let mut command = Command::new("buildah");
        // A store of its own: a person's images stay as they are.
        command.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
        command.args(["--storage-driver", "vfs"]);
        command
    };
    // No container is started to build it, and so none needs a network, cgroups or namespaces.
    let mut bud = buildah();
    bud.args(["bud", "--isolation", "chroot", "--tag", IMAGE, "--file"]);
    step::run("buildah bud", bud.arg(file).arg(&folder))?;
    let archive = target.join("debian/spindle-image.tar");
    if archive.exists() {
        fs::remove_file(&archive)?;
    }
    let mut push = buildah();
    push.args(["push", IMAGE]).arg(format!("docker-archive:{}:{IMAGE}", archive.display()));
    step::run("buildah push", &mut push)?;
    println!("{}", archive.display());
    if is_judged { judge(&storage, &folder.join("judge")) } else { Ok(()) }
}

/// The image's life under buildah: served as it says itself, proven, stopped and served again.
fn judge(storage: &Path, folder: &Path) -> Result<()> {
    let mut script = Command::new("sh");
    script.arg(step::workspace_root().join("packaging/judge/container.sh")).arg(storage);
    script.arg(IMAGE).arg(folder).arg(super::free_port()?.to_string());
    step::run("container.sh", &mut script).map(drop)
}

/// The files of the image below `folder`, which is emptied before.
fn make_rootfs(package: &Path, folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let (files, rootfs) = (folder.join("files"), folder.join("rootfs"));
    fs::create_dir_all(&files)?;
    step::output(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&files))?;
    let program = files.join("usr/bin/spindle");
    let mut wanted = vec![(program.clone(), PathBuf::from("usr/bin/spindle"))];
    for name in ["copyright", "third-party-licences.txt.gz"] {
        let path = Path::new("usr/share/doc/spindle").join(name);
        wanted.push((files.join(&path), path));
    }
    for library in libraries(&program)? {
        let inside = library.strip_prefix("/").context("ldd names whole paths")?.to_owned();
        wanted.push((library, inside));
    }
    for (from, to) in wanted {
        let to = rootfs.join(to);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    fs::create_dir_all(rootfs.join("etc/spindle"))?;
    fs::write(
        rootfs.join("etc/passwd"),
        format!("root:x:0:0::/:\nspindle:x:{USER}:{USER}::/var/lib/spindle:\n"),
    )?;
    fs::write(rootfs.join("etc/group"), format!("root:x:0:\nspindle:x:{USER}:\n"))?;
    let temporary = rootfs.join("tmp");
    fs::create_dir_all(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777))?;
    // Empty: a copy into the image makes it the user's.
    fs::create_dir_all(folder.join("state"))?;
    fs::remove_dir_all(&files)?;
    Ok(rootfs)
}

/// Libraries that the program loads, and its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = step::output(Command::new("ldd").arg(program))?;
    let mut paths = Vec::new();
    for line in listed.lines() {
        if line.contains("not found") {
            bail!("{}: {line}", program.display());
        }
        // "NAME => PATH (ADDRESS)", or of the loader "PATH (ADDRESS)".
        let words = line.split_whitespace();
        paths.extend(words.filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    Ok(paths)
}
