//! Stamps kept only while a group is open: what they detect, and what a crash or a later change discards.

use super::*;

fn while_open() -> InstanceConfig {
    InstanceConfig { page_stamps: PageStampMode::WhileOpen, ..config() }
}

impl Fixture {
    fn change_while_open(&mut self, count: usize) {
        let rows = Rc::clone(&self.rows);
        self.run(async move |world, directory| {
            let instance = open(&world, &directory, while_open()).await.expect("opened");
            change(&instance, &rows, count).await;
            instance.close().await.expect("closed");
        });
    }

    fn keeps_stamps(&mut self) -> bool {
        self.run(async |_, directory| directory.open(STAMPS).await.is_ok())
    }
}

#[test]
fn a_running_group_refuses_a_page_whose_write_was_lost() {
    let mut fixture = Fixture::new(40);
    let rows = Rc::clone(&fixture.rows);
    fixture.run(async move |world, directory| {
        let before = pages(&directory).await;
        let instance = open(&world, &directory, while_open()).await.expect("opened");
        change(&instance, &rows, 200).await;
        world.sleep(std::time::Duration::from_secs(2)).await;
        instance.checkpoint().await.expect("taken");
        assert!(directory.open(STAMPS).await.is_err(), "nothing is written of them while the group is open");
        let after = pages(&directory).await;
        let places = changed(&before, &after);
        for &place in &places {
            put(&directory, place, &before[place]).await;
        }
        let error = read_all(&instance.databases()[0]).await.expect_err("some of them must be read");
        assert!(matches!(error, Error::NotAsWritten { .. }), "{error:?}");
    });
}

#[test]
fn verifier_and_reopening_detect_a_write_lost_before_a_clean_shutdown() {
    let mut fixture = Fixture::new(41);
    let before = fixture.pages();
    fixture.change_while_open(100);
    let after = fixture.pages();
    let place = changed(&before, &after)[0];
    fixture.put(place, &before[place]);
    let (plain, stamped) = fixture.verify();
    assert!(plain.is_clean(), "an old page in its place is good to its checksum");
    assert_eq!(stamped.damaged.iter().map(|damage| damage.page).collect::<Vec<_>>(), [page_at(place)]);
    assert!(stamped.damaged[0].problem.contains("a write was lost"), "{:?}", stamped.damaged);
    assert!(fixture.read_all(while_open()).is_err(), "what the shutdown left is known when it opens again");
    // That was not a clean shutdown: the next opening starts without stamps, and reports nothing wrong.
    assert!(!fixture.keeps_stamps());
    fixture.put(place, &after[place]);
    fixture.read_all(while_open()).expect("whole again");
    assert!(fixture.keeps_stamps());
}

#[test]
fn stamps_of_an_earlier_shutdown_are_ignored() {
    let mut fixture = Fixture::new(42);
    fixture.change_while_open(50);
    let old = fixture.run(async |_, directory| read_file(&directory, STAMPS).await);
    fixture.change_while_open(50);
    fixture.run(async move |_, directory| {
        directory.remove(STAMPS).await.expect("removed");
        let file = directory.create(STAMPS, ByteCount(old.len() as u64)).await.expect("made");
        let bytes = vec![Arc::new(Buffer::copy_of(&old))];
        file.write(ByteOffset(0), bytes, Stability::Stable).await.expect("written");
    });
    let stamps = fixture.verify().1.stamps;
    assert!(matches!(&stamps, StampsVerdict::Unusable(problem) if problem.contains("older")), "{stamps:?}");
    fixture.read_all(while_open()).expect("they are ignored");
    assert!(matches!(fixture.verify().1.stamps, StampsVerdict::Checked { .. }));
}

#[test]
fn durable_stamps_become_in_memory_ones_and_the_checkpoint_requires_none() {
    let mut fixture = Fixture::new(43);
    fixture.read_all(while_open()).expect("the durable ones are loaded");
    fixture.read_all(config()).expect("and started from scratch");
    fixture.read_all(InstanceConfig { page_stamps: PageStampMode::Off, ..config() }).expect("and discarded");
    assert!(!fixture.keeps_stamps());
}
