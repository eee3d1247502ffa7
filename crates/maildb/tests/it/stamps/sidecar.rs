//! Sidecars that are missing, corrupt, foreign, or of another time: opening fails with one clear line, and
//! nothing is repaired silently.

use super::*;

impl Fixture {
    fn bytes(&mut self, name: &'static str) -> Vec<u8> {
        self.run(async move |_, directory| read_file(&directory, name).await)
    }

    fn replace_file(&mut self, name: &'static str, bytes: Option<Vec<u8>>) {
        self.run(async move |_, directory| {
            if directory.open(name).await.is_ok() {
                directory.remove(name).await.expect("removed");
            }
            if let Some(bytes) = bytes {
                let file = directory.create(name, ByteCount(bytes.len() as u64)).await.expect("made");
                let bytes = vec![Arc::new(Buffer::copy_of(&bytes))];
                file.write(ByteOffset(0), bytes, Stability::Stable).await.expect("written");
            }
            directory.sync().await.expect("synced");
        });
    }

    /// The error with which the group refuses to open.
    fn refusal(&mut self) -> String {
        self.read_all(config()).expect_err("it must not open").to_string()
    }

    fn stamps(&mut self) -> StampsVerdict {
        self.verify().1.stamps
    }
}

const GIVE_UP: &str = "verify the database, then open it once without page stamps to discard them";

fn refused(what: &str) -> String {
    format!("priv1.edb: its page stamps in priv1.stamps cannot be used: {what}; {GIVE_UP}")
}

#[test]
fn a_missing_sidecar_is_refused_until_stamps_are_discarded() {
    let mut fixture = Fixture::new(20);
    fixture.replace_file(STAMPS, None);
    assert_eq!(fixture.refusal(), refused("it is missing"));
    assert_eq!(fixture.stamps(), StampsVerdict::NotKept);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    fixture.read_all(without).expect("it opens without them");
    fixture.read_all(config()).expect("and with new stamps");
    // Every page that was read is known from then on.
    let StampsVerdict::Checked { pages_known } = fixture.stamps() else { panic!("{:?}", fixture.stamps()) };
    assert!(pages_known > 20, "{pages_known}");
    let (before, places) = (fixture.pages(), 40);
    fixture.change(places);
    let after = fixture.pages();
    let place = changed(&before, &after)[0];
    fixture.put(place, &before[place]);
    assert!(fixture.read_all(config()).is_err(), "the new stamps find what the old ones would have");
}

#[test]
fn a_sidecar_corrupted_anywhere_is_refused() {
    let mut fixture = Fixture::new(21);
    let whole = fixture.bytes(STAMPS);
    let spoil = |fixture: &mut Fixture, at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fixture.replace_file(STAMPS, Some(bytes));
    };
    // Both copies of the head, as far as they are written.
    let mut bytes = whole.clone();
    for copy in [0, 4096].into_iter().filter(|&copy| whole[copy] != 0) {
        bytes[copy + 100] ^= 1;
    }
    fixture.replace_file(STAMPS, Some(bytes));
    assert_eq!(fixture.refusal(), refused("its head is damaged"));
    // One flipped bit in every block in use.
    let blocks = (2..whole.len() / 4096).filter(|block| whole[block * 4096] != 0).collect::<Vec<_>>();
    assert!(blocks.len() > 1, "{blocks:?}");
    for block in blocks {
        spoil(&mut fixture, block * 4096 + 77);
        match fixture.read_all(config()) {
            Err(Error::StampsUnusable { .. }) => {}
            // A block of an area that is no longer in use.
            Ok(()) => panic!("block {block} does not matter"),
            Err(other) => panic!("block {block}: {other:?}"),
        }
    }
    fixture.replace_file(STAMPS, Some(whole));
    fixture.read_all(config()).expect("whole again");
}

#[test]
fn a_sidecar_of_another_state_database_or_program_is_refused() {
    let mut fixture = Fixture::new(22);
    let (old_stamps, other) = (fixture.bytes(STAMPS), Fixture::new(23).bytes(STAMPS));
    fixture.change(50);
    let new_stamps = fixture.bytes(STAMPS);
    fixture.replace_file(STAMPS, Some(old_stamps));
    let refusal = fixture.refusal();
    assert!(refusal.contains("it ends with flush ") && refusal.ends_with(GIVE_UP), "{refusal}");
    assert!(matches!(fixture.stamps(), StampsVerdict::Unusable(_)), "{:?}", fixture.stamps());
    fixture.replace_file(STAMPS, Some(other));
    assert_eq!(fixture.refusal(), refused("it belongs to another database"));
    assert_eq!(fixture.stamps(), StampsVerdict::Unusable("it belongs to another database".to_owned()));
    let foreign = vec![b'x'; 10_000 / 512 * 512];
    fixture.replace_file(STAMPS, Some(foreign.clone()));
    let line = "priv1.edb: its page stamps in priv1.stamps cannot be used: it is not a page stamp file; move it away";
    assert_eq!(fixture.refusal(), line);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    fixture.read_all(without).expect("it opens without stamps");
    assert_eq!(fixture.refusal(), line, "and does not overwrite the foreign file");
    assert!(fixture.bytes(STAMPS) == foreign, "which is left as it was");
    fixture.replace_file(STAMPS, Some(new_stamps));
    fixture.read_all(config()).expect("stamps that no checkpoint requires are created again");
}

#[test]
fn a_database_restored_from_a_backup_beside_newer_stamps_is_not_served() {
    let mut fixture = Fixture::new(24);
    let backup = fixture.bytes(DATABASE);
    fixture.change(100);
    fixture.replace_file(DATABASE, Some(backup));
    let error = fixture.read_all(config()).expect_err("it is older than its stamps");
    assert!(matches!(error, Error::NotAsWritten { .. }), "{error:?}");
}

#[test]
fn a_run_without_stamps_removes_the_sidecar() {
    let mut fixture = Fixture::new(25);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    fixture.read_all(without).expect("opened");
    let has_stamps = fixture.run(async |_, directory| directory.open(STAMPS).await.is_ok());
    assert!(!has_stamps);
    assert_eq!(fixture.stamps(), StampsVerdict::NotKept);
    let rows = Rc::clone(&fixture.rows);
    fixture.run(async move |world, directory| {
        let instance = open(&world, &directory, config()).await.expect("opened");
        assert_eq!(instance.recovery().stamps_begun, 1);
        change(&instance, &rows, 50).await;
        instance.close().await.expect("closed");
    });
    fixture.read_all(config()).expect("whole");
    assert!(fixture.verify().1.is_clean());
}

/// The journal fills, the table is rewritten and moves, the database outgrows it.
#[test]
fn a_sidecar_that_is_rewritten_many_times_stays_within_its_size_limit() {
    let mut fixture = Fixture::new(26);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let rows = Rc::clone(&fixture.rows);
        fixture.run(async move |world, directory| {
            let instance = open(&world, &directory, config()).await.expect("opened");
            for _ in 0..60 {
                change(&instance, &rows, 40).await;
                instance.checkpoint().await.expect("taken");
            }
            instance.close().await.expect("closed");
        });
        fixture.read_all(config()).expect("whole");
        assert!(fixture.verify().1.is_clean());
        let pages = fixture.pages().len() as u64;
        sizes.push((fixture.bytes(STAMPS).len() as u64, maildb::stamps::space_max(pages).0));
    }
    assert!(sizes.iter().all(|(size, bound)| size <= bound), "{sizes:?}");
}
