//! Filesystems of this kernel on shown files behind loop devices, judged by mkfs, fio, fsck and the kernel.

use recovery::{
    host::HostMounts,
    shown_files::{ShownFile, ShownFiles},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
};
use world::{
    BlockDevice, ByteCount, Directory, World,
    real::{
        self, FolderDirectory, RealOptions, RealPrograms,
        host::{MountBelow, loop_devices_below, mounts_below},
    },
};

const DEVICE_BYTES: u64 = 320 << 20;

/// The reason why such a test cannot run here.
pub fn missing(programs: &[&str]) -> Option<String> {
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Some("no FUSE or no loop devices here".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    let is_there =
        |name: &str| ["/usr/sbin", "/usr/bin", "/sbin"].iter().any(|at| Path::new(at).join(name).exists());
    let absent: Vec<&str> = programs.iter().copied().filter(|name| !is_there(name)).collect();
    (!absent.is_empty()).then(|| format!("{} not installed", absent.join(", ")))
}

/// Runs a program on a helper thread, since this thread answers the kernel; its output.
async fn run(world: &World, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments);
    let (give, take) = std::sync::mpsc::channel();
    std::thread::spawn(move || give.send(command.output()));
    loop {
        match take.try_recv() {
            Ok(output) => {
                let output = output.unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{program} {arguments:?}: {text}");
                return text;
            }
            Err(_) => world.sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}

/// Takes away what a test left, also one that failed.
struct TestFolders {
    folder: tempfile::TempDir,
}

impl TestFolders {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("spindle-shown-").tempdir().unwrap();
        for name in ["images", "mounted", "behind"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for TestFolders {
    fn drop(&mut self) {
        let mounts = mounts_below(self.folder.path()).unwrap();
        let unmount = |mount: &MountBelow| drop(Command::new("umount").arg("-l").arg(&mount.point).status());
        mounts.iter().rev().filter(|mount| mount.kind != "fuse").for_each(unmount);
        for device in loop_devices_below(self.folder.path()).unwrap() {
            let _ = Command::new("losetup").arg("-d").arg(&device.path).status();
        }
        mounts.iter().rev().filter(|mount| mount.kind == "fuse").for_each(unmount);
    }
}

/// One filesystem through the whole chain: made, written with fio's patterns, checked, mounted again and compared.
fn check(kind: &'static str, fsck: &'static [&'static str]) {
    let mkfs = format!("mkfs.{kind}");
    if let Some(why) = missing(&[&mkfs, fsck[0], "fio", "losetup"]) {
        eprintln!("skipped: {why}");
        return;
    }
    let places = TestFolders::new();
    let (images, mounted) = (places.at("images"), places.at("mounted"));
    let behind = places.at("behind");
    real::run(0, RealOptions::default(), async move |world: World| {
        let directory = FolderDirectory::open(&behind).unwrap();
        let file = directory.create("device", ByteCount(DEVICE_BYTES)).await.unwrap();
        let device: Rc<dyn BlockDevice> = file;
        let shown = |is_writable| {
            vec![ShownFile {
                folder: None,
                name: "store.img".to_owned(),
                size: DEVICE_BYTES,
                changed_at: 1,
                device: Rc::clone(&device),
                is_writable,
            }]
        };
        let host = HostMounts::new(&world, Rc::new(RealPrograms::default()));
        let files = ShownFiles::mount(&world, &images, "test", shown(true)).unwrap();
        let image = images.join("store.img");
        let attached = host.attach(&image, device.geometry().sector).await.unwrap();
        let attached_text = attached.to_str().unwrap().to_owned();
        run(&world, &mkfs, &["-q", &attached_text]).await;
        host.mount(&attached, &mounted, kind, true).await.unwrap();
        let file = mounted.join("pattern");
        let name = format!("--filename={}", file.display());
        let job = [
            "--name=pattern",
            &name,
            "--size=96M",
            "--bs=4k",
            "--rw=randwrite",
            "--ioengine=libaio",
            "--iodepth=32",
            "--direct=1",
            "--verify=crc32c",
            "--fsync=512",
            "--verify_state_save=0",
        ];
        run(&world, "fio", &[&job[..], &["--do_verify=1"]].concat()).await;
        let written = run(&world, "sha256sum", &[file.to_str().unwrap()]).await;
        host.take_away(&mounted, &images).await.unwrap();
        // The thread of the requests sees the end a moment after the kernel has unmounted.
        let until = world.now() + std::time::Duration::from_secs(10);
        while !files.is_over() && world.now() < until {
            world.sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(files.is_over(), "the kernel has let go of the mount");

        // New mounts and a new loop device: nothing of this comes from a cache.
        let _again = ShownFiles::mount(&world, &images, "test", shown(true)).unwrap();
        let attached = host.attach(&image, device.geometry().sector).await.unwrap();
        let attached_text = attached.to_str().unwrap().to_owned();
        run(&world, fsck[0], &[&fsck[1..], &[&attached_text]].concat()).await;
        host.mount(&attached, &mounted, kind, false).await.unwrap();
        let found = run(&world, "sha256sum", &[file.to_str().unwrap()]).await;
        assert_eq!(found, written);
        host.take_away(&mounted, &images).await.unwrap();
        assert_eq!(loop_devices_below(&images).unwrap(), []);
    });
}

#[test]
fn ext4_on_a_shown_file_behind_a_loop_device_keeps_every_block() {
    check("ext4", &["e2fsck", "-fn"]);
}

#[test]
fn xfs_on_a_shown_file_behind_a_loop_device_keeps_every_block() {
    check("xfs", &["xfs_repair", "-n"]);
}
