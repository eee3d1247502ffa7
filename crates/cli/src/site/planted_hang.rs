//! A planted bug: a step of a thread's task that does not end, for the test of the watchdog. It exists in builds with debug
//! assertions alone.

use std::{env, path::PathBuf, thread, time::Duration};
use world::{
    IoResult, ThreadEnd, ThreadMain, ThreadStarter, World,
    real::{
        RealThreads,
        host_files::{self, PathKind},
    },
};

/// Name of a thread and of a file, `pool mail=/tmp/hang`: once the file is there, the thread is held.
const VARIABLE: &str = "SPINDLE_PLANTED_HANG";
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts threads, of which one may be held.
pub(super) struct HeldThreads(pub RealThreads);

impl ThreadStarter for HeldThreads {
    fn start(&self, name: &str, main: ThreadMain) -> IoResult<ThreadEnd> {
        let planted = env::var(VARIABLE).unwrap_or_default();
        let Some((_, file)) = planted.split_once('=').filter(|(thread, _)| *thread == name) else {
            return self.0.start(name, main);
        };
        let file = PathBuf::from(file);
        let held = move |world: World| {
            world.spawn("planted hang", hold_once_there(world.clone(), file));
            main(world)
        };
        self.0.start(name, Box::new(held))
    }
}

async fn hold_once_there(world: World, file: PathBuf) {
    while !matches!(host_files::kind(&file), Ok(PathKind::File)) {
        world.sleep(LOOK_EVERY).await;
    }
    loop {
        thread::park();
    }
}
