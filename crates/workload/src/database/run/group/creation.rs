//! Creation of a group's databases.

use super::{context::GroupContext, files::GroupFiles};
use crate::database::{
    load::{
        create::{CreationObserver, CreationOutcome, create},
        error::Error,
        mail_table::MailDatabase,
        session::Store,
    },
    results::test_log::Phase,
    run::progress::{PhaseWork, RunState},
};
use maildb::Instance;
use report::prose::counted;
use std::{cell::RefCell, rc::Rc};
use world::ByteCount;

/// Creates all databases concurrently, and reports each in the test log.
pub(super) async fn create_databases(
    context: &GroupContext,
    files: &GroupFiles,
    instance: &Instance,
) -> Result<(Vec<Store>, Vec<CreationOutcome>), Error> {
    let done: Rc<RefCell<Vec<(u64, u64)>>> =
        Rc::new(RefCell::new(vec![(0, context.plan.database_bytes); files.storage.databases.len()]));
    let tasks: Vec<_> = instance
        .databases()
        .into_iter()
        .enumerate()
        .map(|(index, database)| {
            let watch = GroupCreationObserver {
                group: context.number,
                index,
                done: Rc::clone(&done),
                shared: context.state.clone(),
            };
            let mut session = instance.session();
            let extension = files.extension();
            let plan = Rc::clone(&context.plan);
            // Databases of a run differ in content.
            let seed = plan.seed ^ (u64::from(context.number) << 32 | index as u64) << 8;
            context.world.spawn("create", async move {
                let form = plan.profile.record_form();
                let mail = MailDatabase::attach(database, &mut session, seed, form).await?;
                let mut keys = mail.key_space(plan.profile.skew());
                let wanted = ByteCount(plan.database_bytes);
                let created = create(&mail, &mut session, &mut keys, wanted, &watch).await?;
                let size_max = ByteCount(plan.database_bytes_max);
                let store = Store::new(mail, keys, size_max, extension);
                Ok::<_, Error>((store, created))
            })
        })
        .collect();
    let mut stores = Vec::new();
    let mut created = Vec::new();
    let mut failed = None;
    for task in tasks {
        match task.await {
            Ok((store, made)) => {
                stores.push(store);
                created.push(made);
            }
            Err(error) => {
                context.state.abort();
                failed.get_or_insert(error);
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    instance.checkpoint().await?;
    for (store, made) in stores.iter().zip(&created) {
        let (name, size) = (store.mail.database.name(), store.mail.database.size());
        let records = |count| counted(count, "record");
        context.say(match (made.found, made.inserted) {
            (found, inserted) if !made.complete => {
                let wanted = ByteCount(context.plan.database_bytes);
                format!("{name}: ended at {size} of {wanted}, {}", records(found + inserted))
            }
            (found, 0) => format!("{name}: attached, {size}, {} read and checked", records(found)),
            (0, inserted) => format!("{name}: created, {size}, {}", records(inserted)),
            (found, inserted) => {
                format!("{name}: {} found and checked, {} added, {size}", records(found), records(inserted))
            }
        });
    }
    Ok((stores, created))
}

struct GroupCreationObserver {
    group: u32,
    index: usize,
    done: Rc<RefCell<Vec<(u64, u64)>>>,
    shared: RunState,
}

impl CreationObserver for GroupCreationObserver {
    fn progress(&self, done: ByteCount, total: ByteCount) {
        let mut all = self.done.borrow_mut();
        all[self.index] = (done.0.min(total.0), total.0);
        let sum = all.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let work = PhaseWork { done: sum.0, total: sum.1 };
        self.shared.update(self.group, |progress| progress.reach(Phase::Create, work));
    }

    fn stopped(&self) -> bool {
        self.shared.ending()
    }
}
