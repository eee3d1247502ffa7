//! Messages that others deliver to the databases of a group while it is under load, such as those of a mailbox that a backup has.
//!
//! Invariants:
//!
//! 1. A message that is there is never changed: one that was deleted comes back, and nothing else happens.
//! 2. No session of the load touches a message between its delivery and the commit: it is claimed, as theirs are.
//! 3. Only messages that were this database's come in: the load checks what it reads, and would take others for damage.

use super::context::GroupContext;
use crate::database::load::{
    key_space::{KeyClaim, RecordClaim},
    mail_bytes::from_bytes,
    mail_record::{MailKey, MailRecord, RecordVersion},
    session::SessionContext,
};
use maildb::{Durability, Instance, Session};
use protect::backup::{
    StepError, StepResult,
    control_socket::{Delivery, LiveMailboxes},
};
use std::{rc::Rc, time::Duration};
use tokio::sync::Mutex;
use world::{LocalFuture, World};

/// Interval between looks at a message that a transaction of the load has claimed.
const POLL: Duration = Duration::from_millis(5);
/// Longest wait for it.
const CLAIMED_MAX: Duration = Duration::from_secs(10);

/// The databases of a group as mailboxes. Cheap to clone.
#[derive(Clone)]
pub(super) struct GroupMailboxes {
    context: GroupContext,
    load: Rc<SessionContext>,
    transaction: Rc<Mutex<DeliveryTransaction>>,
}

/// The messages that were delivered since the last commit.
struct DeliveryTransaction {
    session: Session,
    /// By database, with the version that is there once it is committed.
    claims: Vec<(usize, RecordClaim, RecordVersion)>,
}

impl GroupMailboxes {
    pub(super) fn new(context: &GroupContext, load: &Rc<SessionContext>, instance: &Instance) -> Self {
        let transaction = DeliveryTransaction { session: instance.session(), claims: Vec::new() };
        Self {
            context: context.clone(),
            load: Rc::clone(load),
            transaction: Rc::new(Mutex::new(transaction)),
        }
    }

    /// Runs to its end whatever becomes of those who wait for it: no change of a database is given up half-way.
    fn to_its_end<T: 'static>(
        &self,
        work: impl AsyncFnOnce(&SessionContext, &mut DeliveryTransaction) -> T + 'static,
    ) -> LocalFuture<T> {
        let Self { context, load, transaction } = self.clone();
        Box::pin(
            context.world.clone().spawn("delivery of messages", async move {
                work(&load, &mut *transaction.lock().await).await
            }),
        )
    }
}

impl LiveMailboxes for GroupMailboxes {
    fn deliver(&self, database: &str, message: Vec<u8>) -> LocalFuture<Result<Delivery, StepError>> {
        let (world, database) = (self.context.world.clone(), database.to_owned());
        self.to_its_end(async move |load, transaction| {
            let Some(at) = load.stores.iter().position(|store| store.mail.database.name() == database) else {
                return Ok(Delivery::Elsewhere);
            };
            let message = from_bytes(&message)
                .ok_or_else(|| StepError("it is no message of this version of Spindle".to_owned()))?;
            transaction.add(&world, load, (at, message)).await
        })
    }

    fn keep(&self) -> LocalFuture<StepResult> {
        let context = self.context.clone();
        self.to_its_end(async move |load, transaction| {
            let kept = transaction.session.commit(Durability::Stable).await;
            let count = transaction.claims.len();
            transaction.settle(load, kept.is_ok());
            kept.map_err(|error| StepError(error.to_string()))?;
            if count > 0 {
                context.say(format!("{count} messages of a backup were delivered"));
            }
            Ok(())
        })
    }

    fn undo(&self) -> LocalFuture<()> {
        self.to_its_end(async move |load, transaction| transaction.roll_back(load).await)
    }
}

impl DeliveryTransaction {
    /// Adds a message to the database at this place, if it is not there.
    async fn add(
        &mut self,
        world: &World,
        load: &SessionContext,
        (at, message): (usize, MailRecord),
    ) -> Result<Delivery, StepError> {
        let (mail, key) = (&load.stores[at].mail, message.key);
        let foreign =
            |_| StepError(format!("{key} is not one of {}: another run made it", mail.database.name()));
        let version = mail.maker.check(key, None, &message).map_err(foreign)?;
        let delivered = self.claims.iter().find(|(of, claim, _)| *of == at && claim.key == key);
        if let Some((_, _, delivered)) = delivered {
            return Ok(there(*delivered, version));
        }
        let claim = self.claim(world, load, (at, key)).await?;
        if let Some(present) = claim.version {
            load.stores[at].keys.borrow_mut().settle(claim, Some(present));
            return Ok(there(present, version));
        }
        self.claims.push((at, claim, version));
        if let Err(error) = mail.put(&mut self.session, message).await {
            self.roll_back(load).await;
            return Err(StepError(error.to_string()));
        }
        Ok(Delivery::Added)
    }

    /// Claims a message, once no transaction of the load has it.
    async fn claim(
        &self,
        world: &World,
        load: &SessionContext,
        (at, key): (usize, MailKey),
    ) -> Result<RecordClaim, StepError> {
        let store = &load.stores[at];
        let until = world.now() + CLAIMED_MAX;
        loop {
            match store.keys.borrow_mut().claim_key(key) {
                KeyClaim::Claimed(claim) => return Ok(claim),
                KeyClaim::NoMailbox => {
                    let database = store.mail.database.name();
                    return Err(StepError(format!("{database} has no mailbox {}", key.mailbox)));
                }
                KeyClaim::Busy if world.now() < until => {}
                KeyClaim::Busy => return Err(StepError(format!("{key} is being changed; try again"))),
            }
            world.sleep(POLL).await;
        }
    }

    async fn roll_back(&mut self, load: &SessionContext) {
        // If it fails, the group has stopped, and says why.
        let _ = self.session.rollback().await;
        self.settle(load, false);
    }

    /// Releases the claims.
    fn settle(&mut self, load: &SessionContext, is_committed: bool) {
        for (at, claim, version) in self.claims.drain(..) {
            load.stores[at].keys.borrow_mut().settle(claim, is_committed.then_some(version));
        }
    }
}

/// The answer if a version of the message is there already.
fn there(present: RecordVersion, delivered: RecordVersion) -> Delivery {
    if present == delivered { Delivery::Same } else { Delivery::Other }
}
