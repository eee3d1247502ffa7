//! Stamps kept only while a group is open: what they detect, and what a crash or a later change discards.

use super::*;

fn while_open() -> InstanceConfig {
    InstanceConfig { page_stamps: PageStampMode::WhileOpen, ..config() }
}

impl Ground {
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
fn a_running_group_takes_no_page_whose_write_was_lost() {
    let mut ground = Ground::new(40);
    let rows = Rc::clone(&ground.rows);
    ground.run(async move |world, directory| {
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
fn the_verifier_finds_a_lost_write_after_a_clean_shutdown_and_so_does_the_next_opening() {
    let mut ground = Ground::new(41);
    let before = ground.pages();
    ground.change_while_open(100);
    let after = ground.pages();
    let place = changed(&before, &after)[0];
    ground.put(place, &before[place]);
    let (plain, stamped) = ground.verify();
    assert!(plain.is_clean(), "an old page in its place is good to its checksum");
    assert_eq!(stamped.damaged.iter().map(|damage| damage.page).collect::<Vec<_>>(), [page_at(place)]);
    assert!(stamped.damaged[0].problem.contains("a write was lost"), "{:?}", stamped.damaged);
    assert!(ground.read_all(while_open()).is_err(), "what the shutdown left is known when it opens again");
    // That was not a clean shutdown: the next opening starts without stamps, and reports nothing wrong.
    assert!(!ground.keeps_stamps());
    ground.put(place, &after[place]);
    ground.read_all(while_open()).expect("whole again");
    assert!(ground.keeps_stamps());
}

#[test]
fn stamps_of_a_shutdown_before_the_last_are_not_believed() {
    let mut ground = Ground::new(42);
    ground.change_while_open(50);
    let old = ground.run(async |_, directory| read_file(&directory, STAMPS).await);
    ground.change_while_open(50);
    ground.run(async move |_, directory| {
        directory.remove(STAMPS).await.expect("removed");
        let file = directory.create(STAMPS, ByteCount(old.len() as u64)).await.expect("made");
        let bytes = vec![Arc::new(Buffer::copy_of(&old))];
        file.write(ByteOffset(0), bytes, Stability::Stable).await.expect("written");
    });
    let stamps = ground.verify().1.stamps;
    assert!(matches!(&stamps, StampsVerdict::Unusable(problem) if problem.contains("older")), "{stamps:?}");
    ground.read_all(while_open()).expect("they are left aside");
    assert!(matches!(ground.verify().1.stamps, StampsVerdict::Checked { .. }));
}

#[test]
fn durable_stamps_become_those_of_a_session_and_the_checkpoint_relies_on_none() {
    let mut ground = Ground::new(43);
    ground.read_all(while_open()).expect("the durable ones are taken up");
    ground.read_all(config()).expect("and begun anew");
    ground.read_all(InstanceConfig { page_stamps: PageStampMode::Off, ..config() }).expect("and given up");
    assert!(!ground.keeps_stamps());
}
