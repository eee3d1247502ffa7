//! A dial tone that is joined with the database that came back: what came in is added, and a message that changed on both sides is a
//! conflict, which is named and stays as it is in each.

use maildb::{Durability, Instance, InstanceConfig, Session};
use std::{collections::BTreeMap, rc::Rc};
use workload::database::{
    load::{
        mail_record::{MailKey, RecordVersion},
        mail_table::MailDatabase,
        merge::{MergedMail, merge_into},
    },
    plan::profile::RecordForm,
};
use world::{
    BlockDevice, ByteCount, Directory, ExtentDirectory, Random, World,
    sim::{DriveOptions, SimLimits, Simulation},
};

const FORM: RecordForm = RecordForm { record_bytes: 700, compressible_percent: 0 };

/// The version of each message.
type Messages = BTreeMap<MailKey, RecordVersion>;

fn later(version: RecordVersion, times: u64) -> RecordVersion {
    (0..times).fold(version, |version, _| version.next())
}

async fn fill(mail: &MailDatabase, session: &mut Session, messages: &Messages) {
    for (key, version) in messages {
        mail.put(session, mail.maker.make(*key, *version)).await.expect("a new message");
    }
    session.commit(Durability::Stable).await.expect("a commit");
}

async fn read(mail: &MailDatabase) -> Messages {
    let mut messages = Messages::new();
    let scanned = mail.scan(|found| {
        messages.extend(found.iter().copied());
        true
    });
    scanned.await.expect("every record is whole");
    messages
}

/// Messages of both, and of each alone. Of those of both some have changed on one side, or on both.
fn draw(random: &mut Random) -> [Messages; 2] {
    let (mut lost, mut tone) = (Messages::new(), Messages::new());
    for mailbox in 0..4 {
        for message in 0..40 + random.below(400) as i64 {
            let key = MailKey { mailbox, message };
            let version = |random: &mut Random| later(RecordVersion::FIRST, random.below(3));
            match random.below(4) {
                0 => drop(lost.insert(key, version(random))),
                1 => drop(tone.insert(key, version(random))),
                2 => {
                    let version = version(random);
                    lost.insert(key, version);
                    tone.insert(key, version);
                }
                _ => {
                    lost.insert(key, version(random));
                    tone.insert(key, version(random));
                }
            }
        }
    }
    [lost, tone]
}

async fn join(world: World, directory: Rc<dyn Directory>, seed: u64) -> MergedMail {
    let mut random = Random::new(seed, "messages");
    let [lost, tone] = draw(&mut random);
    let location = |name: &str| maildb::DatabaseLocation {
        directory: Rc::clone(&directory),
        file_name: name.to_owned(),
    };
    let locations = vec![location("lost.edb"), location("tone.edb")];
    let config = InstanceConfig::new(maildb::PageSize::Kib8, ByteCount::mib(8));
    let opened = Instance::open(&world, Rc::clone(&directory), locations, config).await;
    let instance = opened.expect("the group opens");
    let mut session = instance.session();
    let mut mails = Vec::new();
    for (database, messages) in instance.databases().iter().zip([&lost, &tone]) {
        let mail = MailDatabase::attach(database.clone(), &mut session, 11, FORM).await.expect("a new one");
        fill(&mail, &mut session, messages).await;
        mails.push(mail);
    }
    let [into, from] = [&mails[0], &mails[1]];
    let merged = merge_into(&from.database, (&into.database, &mut session)).await.expect("both are readable");
    assert!(read(from).await == tone, "the dial tone is not written");
    let mut both = tone.clone();
    both.extend(lost.clone());
    assert!(read(into).await == both, "what it had is as it was, and what it did not have is there");
    let conflicts: Vec<MailKey> = tone
        .iter()
        .filter(|(key, version)| lost.get(key).is_some_and(|own| own != *version))
        .map(|(key, _)| *key)
        .collect();
    assert_eq!(merged.conflicts, conflicts.len() as u64);
    assert_eq!(merged.named, conflicts[..conflicts.len().min(1_000)], "each is named");
    assert_eq!(merged.added, tone.keys().filter(|key| !lost.contains_key(key)).count() as u64);
    assert_eq!(merged.added + merged.same + merged.conflicts, tone.len() as u64);
    // A merge that was killed is given again.
    let again = merge_into(&from.database, (&into.database, &mut session)).await.expect("again");
    let same = merged.same + merged.added;
    assert_eq!(again, MergedMail { added: 0, same, ..merged.clone() });
    drop(session);
    instance.close().await.expect("closed");
    merged
}

#[test]
fn a_message_that_changed_on_both_sides_is_named_and_stays_in_each() {
    let mut conflicts = 0;
    for seed in 0..4 {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount(256 << 20)));
        let outcome = simulation.run(SimLimits::generous(), |world| async move {
            let device = drive as Rc<dyn BlockDevice>;
            ExtentDirectory::format(Rc::clone(&device)).await.expect("a new drive");
            let directory = ExtentDirectory::open(device).await.expect("it has a directory");
            join(world, Rc::new(directory), seed).await
        });
        conflicts += outcome.completed().conflicts;
    }
    assert!(conflicts > 100, "{conflicts} conflicts");
}
