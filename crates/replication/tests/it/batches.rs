//! Commands that arrive at a secondary together go to its drives together, and are confirmed together.

use crate::sites::{Site, line, volumes_of};
use array::{
    pool::{AnswerHold, DeliveredRecord, LogSubscriber},
    volume::VolumeDevice,
};
use replication::{
    connect::SiteRole,
    primary::PrimaryGroup,
    secondary::SecondaryGroup,
    session::{ReplicationMode, SessionState},
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability, World,
    sim::{SimLimits, Simulation},
};

const COMMANDS: u64 = 64;
const MODE: ReplicationMode = ReplicationMode::Sync { hold: Duration::from_secs(5), is_failsafe: true };

/// Counts what a log writes: a batch is offered before any record of it is taken.
#[derive(Default)]
struct BatchCounter {
    is_offered: Cell<bool>,
    batches: Cell<u64>,
    commands: Cell<u64>,
}

impl LogSubscriber for BatchCounter {
    fn offer(&self, _record: &Rc<DeliveredRecord>) {
        self.is_offered.set(true);
    }

    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        self.batches.update(|count| count + u64::from(self.is_offered.take()));
        self.commands.update(|count| count + record.changes.len() as u64);
    }
}

async fn write_at_once(world: World, sites: [Rc<Site>; 2]) {
    for site in &sites {
        site.make(&world).await;
    }
    let [one, other] = &sites;
    let (member, follower) = (one.open_member(&world).await, other.open_member(&world).await);
    let has = member.position_after_opening().unwrap();
    let primary = PrimaryGroup::begin(&world, &member, (MODE, false), has);
    let secondary = Rc::new(SecondaryGroup::new(&world, &follower, (has, false)));
    let counter = Rc::new(BatchCounter::default());
    let _counting = follower.pool().subscribe(Rc::clone(&counter) as Rc<dyn LogSubscriber>);
    let (_line, ours, theirs) = line(&world, Duration::from_millis(2));
    let (leading, following) = (Rc::clone(&primary), Rc::clone(&secondary));
    drop(world.spawn("primary", async move { drop(leading.run(&ours).await) }));
    drop(world.spawn("secondary", async move { drop(following.run(&theirs).await) }));
    while primary.session().state() != SessionState::Streaming || !primary.session().is_in_sync() {
        world.sleep(Duration::from_millis(1)).await;
    }
    let before = (counter.batches.get(), counter.commands.get());
    let device = VolumeDevice(volumes_of(member.pool()).remove(0));
    let block = std::sync::Arc::new(Buffer::copy_of(&[7; 4096]));
    let writes: Vec<_> = (0..COMMANDS)
        .map(|index| device.write(ByteOffset(index * 4096), vec![block.clone()], Stability::Stable))
        .collect();
    for write in writes {
        write.await.unwrap();
    }
    let (batches, commands) = (counter.batches.get() - before.0, counter.commands.get() - before.1);
    assert_eq!(commands, COMMANDS, "each is there once");
    assert!(batches <= 6, "{commands} commands took {batches} batches");
    assert!(secondary.has() >= primary.session().has().stamps()[0], "what was answered is confirmed");
}

async fn write_at_the_end(world: World, site: Rc<Site>) {
    site.make(&world).await;
    let member = site.open_member(&world).await;
    let has = member.position_after_opening().unwrap();
    let primary = PrimaryGroup::begin(&world, &member, (MODE, false), has);
    let device = VolumeDevice(volumes_of(member.pool()).remove(0));
    let block = std::sync::Arc::new(Buffer::copy_of(&[7; 4096]));
    let writes: Vec<_> = (0..COMMANDS)
        .map(|index| device.write(ByteOffset(index * 4096), vec![block.clone()], Stability::Stable))
        .collect();
    world.yield_now().await;
    let has = primary.session().has().stamps()[0];
    primary.refuse_hosts();
    primary.end();
    let now = member.position_after_leading(has).await.unwrap();
    assert!(now > has, "they are in the log, and the group saw none");
    assert_eq!(now, member.position_after_opening().unwrap(), "as a crash would show it");
    for write in writes {
        assert!(write.await.is_err(), "nobody else has it");
    }
}

#[test]
fn commands_that_are_refused_on_their_way_count_as_what_the_side_has() {
    let mut simulation = Simulation::new(49);
    let site = Site::new(&mut simulation, 1, SiteRole::Primary);
    simulation.run(SimLimits::generous(), |world| write_at_the_end(world, site)).completed();
}

#[test]
fn commands_that_arrive_together_make_a_few_batches_of_the_log() {
    let mut simulation = Simulation::new(48);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(number, role)| Site::new(&mut simulation, number, role));
    simulation.run(SimLimits::generous(), |world| write_at_once(world, sites)).completed();
}
