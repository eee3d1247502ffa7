//! Sets that the server keeps, in simulated time: backups by schedules, orders of people, crashes of the server between any two
//! awaits, pools that are away.

use crate::sim_schedules::{Fixture, RunningLife, ScheduledLife};
use control::sets::{SetKeeping, SetOrder};
use protect::set_keeper::{PersonOrder, SetView};
use std::time::Duration;
use world::sim::SimLimits;

const QUARTER_S: i64 = 900;

const SITE: &str = "
    [[group]]
    name = 'logs'
    [[group]]
    name = 'mail'
    [[volume]]
    name = 'a'
    group = 'mail'
    gb = 0.001953125
    [[volume]]
    name = 'b'
    group = 'logs'
    gb = 0.001953125
    [[protect]]
    set = 'post'
    volumes = ['a', 'logs/b']
    schedules = ['3x15min', '2x1d@03:00']
    [protect.keep]
    at_least = 2
";

fn run(seed: u64, test: impl AsyncFnOnce(ScheduledLife) + 'static) {
    let mut fixture = Fixture::new(seed);
    let life = fixture.life();
    let limits = SimLimits { span: Duration::from_secs(5 * 86_400), ..SimLimits::generous() };
    fixture.simulation.run(limits, |world| async move { test(life.in_world(&world)).await }).completed();
}

fn view_of(life: &RunningLife, set: &str) -> SetView {
    let sets = life.server.handle().sets();
    let kept = sets.iter().find(|kept| kept.wanted.settings.name == set).unwrap();
    match &kept.keeping {
        SetKeeping::Server { view: Some(view), .. } => view.clone(),
        other => panic!("{other:?}"),
    }
}

async fn order(life: &RunningLife, set: &str, order: SetOrder) -> Result<u64, String> {
    let sets = life.server.handle().sets();
    let kept = sets.iter().find(|kept| kept.wanted.settings.name == set).unwrap();
    let SetKeeping::Server { orders, .. } = &kept.keeping else { panic!("{:?}", kept.keeping) };
    orders.give(order, "ada").await.map(|answer| answer.number).map_err(|refusal| format!("{refusal:?}"))
}

fn numbers(view: &SetView) -> Vec<u64> {
    view.backups.iter().map(|backup| backup.number).collect()
}

fn follow(number: u64, order: PersonOrder) -> SetOrder {
    SetOrder::Follow { number, order }
}

#[test]
fn a_set_is_backed_up_over_its_pools_by_its_schedules_and_by_people() {
    run(1, async |life| {
        let mut life = life.begin(SITE).await.unwrap();
        life.open();
        life.sleep(10).await;
        let first = view_of(&life, "post");
        assert_eq!(numbers(&first), [1], "{first:?}");
        assert_eq!(first.backups[0].name, "post-2026-11-27-1234-1");
        let listed = life.listed().await;
        for volume in ["mail/a", "logs/b"] {
            assert_eq!(listed[volume][0].name, "post-2026-11-27-1234-1");
        }
        assert_eq!(order(&life, "post", SetOrder::BackUp { holds: vec!["upgrade".into()] }).await, Ok(2));
        life.sleep(5 * QUARTER_S).await;
        let view = view_of(&life, "post");
        // Three of quarters, the first one of the day, and the one that is held.
        assert_eq!(numbers(&view), [1, 2, 5, 6, 7], "{view:?}");
        let refused = order(&life, "post", follow(2, PersonOrder::Delete { may_be_last: false })).await;
        assert!(refused.unwrap_err().contains("backup 2 stays: held: upgrade"));
        let release = PersonOrder::Release { hold: "upgrade".into() };
        assert_eq!(order(&life, "post", follow(2, release)).await, Ok(2));
        let delete = PersonOrder::Delete { may_be_last: false };
        assert_eq!(order(&life, "post", follow(2, delete.clone())).await, Ok(2));
        let unknown = order(&life, "post", follow(2, delete)).await.unwrap_err();
        assert!(unknown.starts_with("Unknown") && unknown.contains("there is no backup 2"), "{unknown}");
        let listed = life.listed().await;
        assert_eq!((listed["mail/a"].len(), listed["logs/b"].len()), (4, 4));
        let lines = life.said();
        assert!(
            lines.iter().any(|line| line.contains("set post: post-2026-11-27-1235-2 is deleted")),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| !line.contains("was not made")), "{lines:?}");
        life.server.stop().await;
    });
}
