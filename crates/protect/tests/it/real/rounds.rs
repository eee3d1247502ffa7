//! Rounds with real hooks over a real filesystem.

use super::{CopyCutter, LoopMount, helper_program, script};
use protect::backup::{
    BackupCutter, BackupLabel, BackupOutcome, BackupPolicy, BackupSet, Freezable, UncoveredCut,
    filesystem::FilesystemFreeze,
    hooks::{HookCommand, HookRun, HookSettings, HookedApplication},
    start_backup,
};
use std::{fs, path::Path, process::Command, rc::Rc, time::Duration};
use world::{
    World,
    real::{RealOptions, RealPrograms, freeze::RealMount, run},
};

/// An application of this test: a script that appends lines to a file while `quiet` does not exist.
fn hooked(world: &World, folder: &Path, freeze: &str, thaw: &str) -> Rc<HookedApplication> {
    let command = |name: &str, text: &str| {
        let path = folder.join(name);
        script(&path, text);
        HookCommand::new(&[path.display().to_string()]).unwrap()
    };
    let settings = HookSettings::new(command("before", freeze), command("after", thaw));
    let settings = settings.with_timeout(Duration::from_secs(2)).unwrap();
    let programs = Rc::new(RealPrograms::default());
    Rc::new(HookedApplication::new(world, programs, settings, "mail", "b1"))
}

/// One round of hooks over the filesystem.
async fn round(
    world: &World,
    mounted: &LoopMount,
    (freeze, thaw): (&str, &str),
    cutter: CopyCutter,
) -> (BackupOutcome, Vec<HookRun>) {
    let application = hooked(world, mounted.folder(), freeze, thaw);
    let mount = RealMount::open_with(&mounted.point(), &[], helper_program()).unwrap();
    let filesystem = Rc::new(FilesystemFreeze::new(world, Rc::new(mount)));
    let things = vec![Rc::clone(&application) as Rc<dyn Freezable>, filesystem];
    let set = BackupSet { things, cutter: Rc::new(cutter) as Rc<dyn BackupCutter> };
    let policy = BackupPolicy::default().with_uncovered(UncoveredCut::KeepAsCrash);
    let outcome = start_backup(world, set, policy, "b1").await;
    assert!(!mounted.is_frozen(), "{outcome:?}");
    (outcome, application.runs())
}

fn in_real_time(kind: &str, test: impl AsyncFn(World, &LoopMount)) {
    if let Some(mounted) = LoopMount::make(kind) {
        run(7, RealOptions::default(), async |world| test(world, &mounted).await);
    }
}

#[test]
fn a_cut_over_a_frozen_filesystem_holds_what_was_answered_and_nothing_later() {
    for kind in ["ext4", "xfs"] {
        in_real_time(kind, async |world, mounted| {
            fs::write(mounted.point().join("before"), "not synced by anybody").unwrap();
            let cutter = CopyCutter::new(mounted);
            // It waits in the kernel, and is killed there: the write was never answered.
            let late = mounted.point().join("late");
            let mut writer = Command::new("sh");
            writer.args(["-c", "(echo late > \"$1\") & sleep 0.2", "writer"]).arg(late);
            cutter.meanwhile.replace(Some(Box::new(move || assert!(writer.status().unwrap().success()))));
            let cut = cutter.cut.clone();
            let attempts = mounted.folder().join("attempts");
            let freeze = format!(
                "echo x >> {0}; [ $(wc -l < {0}) -gt 2 ] || {{ echo 'queue busy'; exit 75; }}\n\
                 echo \"$SPINDLE_SET $SPINDLE_POINT $SPINDLE_PHASE\"; [ \"$SPINDLE_DEADLINE_MS\" -gt 8000 ]",
                attempts.display()
            );
            let (outcome, runs) = round(&world, mounted, (&freeze, "echo $SPINDLE_PHASE"), cutter).await;
            assert_eq!(outcome.label, Some(BackupLabel::Application), "{outcome:?}");
            assert!(outcome.problems.is_empty(), "{outcome:?}");
            let [freeze, thaw] = &runs[..] else { panic!("{runs:?}") };
            assert_eq!((freeze.attempts, &*freeze.output), (3, "mail b1 freeze\n"));
            assert_eq!((thaw.attempts, &*thaw.output), (1, "thaw\n"));
            let restored = mounted.mount_cut(&cut);
            assert_eq!(fs::read_to_string(restored.join("before")).unwrap(), "not synced by anybody");
            assert!(!restored.join("late").exists());
            let (began, thawed) = (outcome.freeze_began.unwrap(), outcome.thawed.unwrap());
            println!("note: {kind} was frozen for {} ms", thawed.since(began).as_millis());
        });
    }
}

#[test]
fn a_filesystem_that_someone_else_thawed_gives_a_crash_cut() {
    in_real_time("ext4", async |world, mounted| {
        let cutter = CopyCutter::new(mounted);
        let mut thaw = Command::new("fsfreeze");
        thaw.arg("-u").arg(mounted.point());
        cutter.meanwhile.replace(Some(Box::new(move || assert!(thaw.status().unwrap().success()))));
        let (outcome, _) = round(&world, mounted, ("true", "true"), cutter).await;
        let reason = format!(
            "the filesystem at {}: it was not held: something else had thawed it before the cut was known",
            mounted.point().display()
        );
        assert_eq!(outcome.label, Some(BackupLabel::Crash(reason)));
    });
}

#[test]
fn hooks_that_hang_fail_and_find_nothing_frozen_give_crash_cuts_in_time() {
    in_real_time("ext4", async |world, mounted| {
        let hook = |name: &str| mounted.folder().join(name).display().to_string();
        let (before, after) = (hook("before"), hook("after"));
        let what = format!("the application behind {before}");
        let check = async |freeze: &str, thaw: &str, reason: &str| {
            let began = world.now();
            let (outcome, _) = round(&world, mounted, (freeze, thaw), CopyCutter::new(mounted)).await;
            assert_eq!(outcome.label, Some(BackupLabel::Crash(format!("{what}: {reason}"))));
            // A hook has 2 s of its own, and 2 s from SIGTERM to SIGKILL.
            assert!(world.now().since(began) < Duration::from_secs(8));
        };
        let timeout = "did not end within 2000 ms and was ended";
        let story = format!("it was not frozen: {before} {timeout}");
        check("trap '' TERM; while :; do sleep 0.2; done", "true", &story).await;
        let story = format!("it did not thaw: {after} {timeout}");
        check("true", "sleep 60", &story).await;
        let story = format!("it was not frozen: {before} exited with 4: the queue is corrupt");
        check("echo the queue is corrupt >&2; exit 4", "true", &story).await;
        let story = "it was not held: something else had thawed it before the cut was known";
        check("true", "exit 3", story).await;
    });
}

#[test]
fn a_hook_that_freezes_nothing_leaves_the_label_to_the_filesystem() {
    in_real_time("xfs", async |world, mounted| {
        let freeze = "echo spindle-consistency: none";
        let (outcome, _) = round(&world, mounted, (freeze, "true"), CopyCutter::new(mounted)).await;
        assert_eq!(outcome.label, Some(BackupLabel::Filesystem), "{outcome:?}");
        let (outcome, _) =
            round(&world, mounted, ("head -c 70000 /dev/zero", "true"), CopyCutter::new(mounted)).await;
        let Some(BackupLabel::Crash(reason)) = outcome.label else { panic!("{outcome:?}") };
        let end = "is not understood: its output of 70000 bytes is longer than 64 KiB; let it print less";
        assert!(reason.ends_with(end), "{reason}");
    });
}
