//! Sidecars that are missing, corrupt, foreign, or of another time: opening fails with one clear line, and
//! nothing is repaired silently.

use super::*;

impl Ground {
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

const GIVE_UP: &str = "verify the database, and open it once without page stamps to give them up";

fn refused(what: &str) -> String {
    format!("priv1.edb: its page stamps in priv1.stamps cannot be used: {what}; {GIVE_UP}")
}

#[test]
fn a_sidecar_that_is_missing_is_missed_until_it_is_given_up() {
    let mut ground = Ground::new(20);
    ground.replace_file(STAMPS, None);
    assert_eq!(ground.refusal(), refused("it is missing"));
    assert_eq!(ground.stamps(), StampsVerdict::NotKept);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    ground.read_all(without).expect("it opens without them");
    ground.read_all(config()).expect("and with them again, begun anew");
    // Every page that was read is known from then on.
    let StampsVerdict::Checked { pages_known } = ground.stamps() else { panic!("{:?}", ground.stamps()) };
    assert!(pages_known > 20, "{pages_known}");
    let (before, places) = (ground.pages(), 40);
    ground.change(places);
    let after = ground.pages();
    let place = changed(&before, &after)[0];
    ground.put(place, &before[place]);
    assert!(ground.read_all(config()).is_err(), "the new stamps find what the old ones would have");
}

#[test]
fn a_garbled_sidecar_is_refused_wherever_it_is_garbled() {
    let mut ground = Ground::new(21);
    let whole = ground.bytes(STAMPS);
    let spoil = |ground: &mut Ground, at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        ground.replace_file(STAMPS, Some(bytes));
    };
    // Both copies of the head, as far as they are written.
    let mut bytes = whole.clone();
    for copy in [0, 4096].into_iter().filter(|&copy| whole[copy] != 0) {
        bytes[copy + 100] ^= 1;
    }
    ground.replace_file(STAMPS, Some(bytes));
    assert_eq!(ground.refusal(), refused("its head is damaged"));
    // One flipped bit in every block in use.
    let blocks = (2..whole.len() / 4096).filter(|block| whole[block * 4096] != 0).collect::<Vec<_>>();
    assert!(blocks.len() > 1, "{blocks:?}");
    for block in blocks {
        spoil(&mut ground, block * 4096 + 77);
        match ground.read_all(config()) {
            Err(Error::StampsUnusable { .. }) => {}
            // A block of an area that is no longer in use.
            Ok(()) => panic!("block {block} does not matter"),
            Err(other) => panic!("block {block}: {other:?}"),
        }
    }
    ground.replace_file(STAMPS, Some(whole));
    ground.read_all(config()).expect("whole again");
}

#[test]
fn a_sidecar_of_another_time_or_database_or_program_is_refused() {
    let mut ground = Ground::new(22);
    let (old_stamps, other) = (ground.bytes(STAMPS), Ground::new(23).bytes(STAMPS));
    ground.change(50);
    let new_stamps = ground.bytes(STAMPS);
    ground.replace_file(STAMPS, Some(old_stamps));
    let refusal = ground.refusal();
    assert!(refusal.contains("it ends with settling ") && refusal.ends_with(GIVE_UP), "{refusal}");
    assert!(matches!(ground.stamps(), StampsVerdict::Unusable(_)), "{:?}", ground.stamps());
    ground.replace_file(STAMPS, Some(other));
    assert_eq!(ground.refusal(), refused("it belongs to another database"));
    assert_eq!(ground.stamps(), StampsVerdict::Unusable("it belongs to another database".to_owned()));
    let foreign = vec![b'x'; 10_000 / 512 * 512];
    ground.replace_file(STAMPS, Some(foreign.clone()));
    let line =
        "priv1.edb: its page stamps in priv1.stamps cannot be used: it is something else; move it away";
    assert_eq!(ground.refusal(), line);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    ground.read_all(without).expect("it opens without stamps");
    assert_eq!(ground.refusal(), line, "and does not begin new ones over somebody's file");
    assert!(ground.bytes(STAMPS) == foreign, "which is left as it was");
    ground.replace_file(STAMPS, Some(new_stamps));
    ground.read_all(config()).expect("stamps on which nothing relies any more are made anew");
}

#[test]
fn a_database_restored_from_a_backup_beside_newer_stamps_is_not_served() {
    let mut ground = Ground::new(24);
    let backup = ground.bytes(DATABASE);
    ground.change(100);
    ground.replace_file(DATABASE, Some(backup));
    let error = ground.read_all(config()).expect_err("it is older than its stamps");
    assert!(matches!(error, Error::NotAsWritten { .. }), "{error:?}");
}

#[test]
fn a_run_without_stamps_takes_the_old_ones_away() {
    let mut ground = Ground::new(25);
    let without = InstanceConfig { page_stamps: PageStampMode::Off, ..config() };
    ground.read_all(without).expect("opened");
    let has_stamps = ground.run(async |_, directory| directory.open(STAMPS).await.is_ok());
    assert!(!has_stamps);
    assert_eq!(ground.stamps(), StampsVerdict::NotKept);
    let rows = Rc::clone(&ground.rows);
    ground.run(async move |world, directory| {
        let instance = open(&world, &directory, config()).await.expect("opened");
        assert_eq!(instance.recovery().stamps_begun, 1);
        change(&instance, &rows, 50).await;
        instance.close().await.expect("closed");
    });
    ground.read_all(config()).expect("whole");
    assert!(ground.verify().1.is_clean());
}

/// The journal fills, the table is rewritten and moves, the database outgrows it.
#[test]
fn a_sidecar_is_written_anew_again_and_again_and_stays_within_its_bounds() {
    let mut ground = Ground::new(26);
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let rows = Rc::clone(&ground.rows);
        ground.run(async move |world, directory| {
            let instance = open(&world, &directory, config()).await.expect("opened");
            for _ in 0..60 {
                change(&instance, &rows, 40).await;
                instance.checkpoint().await.expect("taken");
            }
            instance.close().await.expect("closed");
        });
        ground.read_all(config()).expect("whole");
        assert!(ground.verify().1.is_clean());
        let pages = ground.pages().len() as u64;
        sizes.push((ground.bytes(STAMPS).len() as u64, maildb::stamps::space_max(pages).0));
    }
    assert!(sizes.iter().all(|(size, bound)| size <= bound), "{sizes:?}");
}
