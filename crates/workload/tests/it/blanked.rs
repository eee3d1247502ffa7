//! Storage that loses stored pages between load and verification.

use crate::real_run::{folders, plan, run_opened};
use maildb::{DatabaseLocation, Instance, InstanceConfig, PageSize};
use std::{cell::Cell, path::PathBuf, rc::Rc, sync::Arc};
use workload::{
    database::{OpenGroup, measure::verify::verify_one_database, plan::LoadPlan, run::group::GroupStorage},
    verdict::{RunVerdict, VerdictOutcome},
};
use world::{
    Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, IoResult, LocalFuture, Stability,
    real::{self, FolderDirectory, RealOptions},
};

const PAGE_BYTES: u64 = 8192;
const DATABASE: &str = "priv2.edb";
const LOST: std::ops::Range<u64> = 300..310;

/// A directory that loses ten pages of a database before it is opened again.
struct ForgetfulDirectory {
    inner: Rc<dyn Directory>,
    forgotten: Rc<Cell<bool>>,
}

impl Directory for ForgetfulDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (opening, forgotten) = (self.inner.open(name), Rc::clone(&self.forgotten));
        let forgets = name == DATABASE;
        Box::pin(async move {
            let file = opening.await?;
            if forgets && !forgotten.replace(true) {
                let zeros = Buffer::zeroed(((LOST.end - LOST.start) * PAGE_BYTES) as usize);
                let at = ByteOffset((LOST.start + 1) * PAGE_BYTES);
                file.write(at, vec![Arc::new(zeros)], Stability::Stable).await?;
            }
            Ok(file)
        })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.inner.create(name, size)
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.inner.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.inner.sync()
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.inner.free()
    }
}

async fn forgetful(path: PathBuf) -> IoResult<GroupStorage> {
    let inner: Rc<dyn Directory> = Rc::new(FolderDirectory::open(&path)?);
    let directory: Rc<dyn Directory> = Rc::new(ForgetfulDirectory { inner, forgotten: Rc::default() });
    let database = |number| (Rc::clone(&directory), format!("priv{number}.edb"), "databases".to_owned());
    Ok(GroupStorage {
        databases: vec![database(1), database(2)],
        log: (Rc::clone(&directory), "logs".to_owned()),
        pools: None,
        control: None,
    })
}

#[test]
fn blank_pages_after_an_unclean_shutdown_are_reported_as_unjudged() {
    let folder = folders(1);
    let path = folder.path().join("0");
    real::run(1, RealOptions::default(), async |world| {
        let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(&path).unwrap());
        let location = DatabaseLocation { directory: Rc::clone(&directory), file_name: DATABASE.to_owned() };
        let config = InstanceConfig::new(PageSize::Kib8, ByteCount::mib(4));
        let instance = Instance::open(&world, Rc::clone(&directory), vec![location], config).await.unwrap();
        let verify =
            async || verify_one_database(&world, &directory, DATABASE, &mut |_, _| {}).await.unwrap();
        let running = verify().await;
        instance.close().await.unwrap();
        let closed = verify().await;
        assert!(running.empty > 0 && closed.empty > 0, "{running:?} {closed:?}");
        assert!(running.blank_unjudged && !closed.blank_unjudged, "{running:?} {closed:?}");
        assert_eq!(running.damaged.len() + closed.damaged.len(), 0);
    });
}

#[test]
fn pages_that_became_zeros_fail_the_run_and_are_named() {
    let folder = folders(1);
    let path = folder.path().to_owned();
    let open: OpenGroup = Arc::new(move |_, group| Box::pin(forgetful(path.join(group.to_string()))));
    let mut plan = plan("exchange-2007", LoadPlan::Threads { per_group: 4 });
    (plan.duration_s, plan.fill_s_max) = (1, 2);
    // Nothing is deleted: a page that a deletion empties is free, and may be blank.
    plan.profile.set("delete_percent", "0").unwrap();
    plan.profile.set("insert_percent", "70").unwrap();
    // Page stamps would detect it first, on any page: without them the trees must.
    plan.profile.set("page_stamps", "0").unwrap();
    plan.profile.check().unwrap();
    let results = run_opened(plan, open);
    let [first, second, log] = &results.verified[..] else { panic!("{:?}", results.verified) };
    assert!(first.damaged.is_empty() && log.damaged.is_empty(), "{:?} {:?}", first.damaged, log.damaged);
    let expected: Vec<String> = LOST
        .map(|page| format!("page {page}: it is in use, and blank: what was written there is gone"))
        .collect();
    assert_eq!(second.damaged, expected);
    assert!(first.empty > 0, "pages never used are no damage");
    assert_eq!(results.failure_counts.checksum, 10);
    assert_eq!(results.failures[0].text, format!("priv2.edb: {}", expected[0]));
    assert_eq!(RunVerdict::of(&results).unwrap().answer, VerdictOutcome::Fail);
}
