//! Locks: who excludes whom, and for how long.

use crate::volumes::access;
use std::{rc::Rc, time::Duration};
use vault::{
    VaultError,
    locks::{LockKind, VaultLock},
    planted::{VaultBug, with_vault_bug},
    repository::Repository,
    sealing::SealingKey,
    store::{SimVaultStore, VaultFileKind},
};
use world::{World, sim};

async fn repository(world: &World, store: &SimVaultStore, (host, pid): (&str, u32)) -> Rc<Repository> {
    let mut access = access(world, store.in_world(world), pid);
    access.maker.host = host.to_owned();
    let key = SealingKey::of(&[5; 64]);
    Rc::new(match store.names(VaultFileKind::Config).is_empty() {
        true => Repository::make_with_key(&access, key).await.unwrap(),
        false => Repository::open_with_key(&access, key).await.unwrap(),
    })
}

fn exclusive_is_refused_beside_another() -> bool {
    sim::run(1, |world| async move {
        let store = SimVaultStore::default();
        let [a, b] = [repository(&world, &store, ("a", 1)).await, repository(&world, &store, ("b", 2)).await];
        let shared = VaultLock::take(&a, LockKind::Shared).await.unwrap();
        let also = VaultLock::take(&b, LockKind::Shared).await.unwrap();
        also.release().await.unwrap();
        let refused = matches!(VaultLock::take(&b, LockKind::Exclusive).await, Err(VaultError::Locked(_)));
        shared.release().await.unwrap();
        if let Ok(exclusive) = VaultLock::take(&b, LockKind::Exclusive).await {
            let also = matches!(VaultLock::take(&a, LockKind::Shared).await, Err(VaultError::Locked(_)));
            exclusive.release().await.unwrap();
            return refused && also && store.names(VaultFileKind::Lock).is_empty();
        }
        false
    })
    .0
}

#[test]
fn an_exclusive_lock_excludes_all_others_and_the_planted_bug_is_noticed() {
    assert!(exclusive_is_refused_beside_another());
    assert!(!with_vault_bug(VaultBug::LockIgnored, exclusive_is_refused_beside_another));
}

#[test]
fn of_two_that_come_at_once_at_most_one_has_the_lock() {
    for seed in 0..20 {
        sim::run(seed, |world| async move {
            let store = SimVaultStore::default();
            let [a, b] =
                [repository(&world, &store, ("a", 1)).await, repository(&world, &store, ("b", 2)).await];
            let take = |repository: Rc<Repository>| {
                world.spawn("take", async move { VaultLock::take(&repository, LockKind::Exclusive).await })
            };
            let (a, b) = (take(a), take(b));
            let taken = [a.await, b.await];
            assert!(taken.iter().filter(|taken| taken.is_ok()).count() <= 1);
        });
    }
}

#[test]
fn locks_of_dead_processes_and_old_ones_do_not_count_and_holders_give_up_before() {
    sim::run(2, |world| async move {
        let store = SimVaultStore::default();
        let [here, elsewhere] =
            [repository(&world, &store, ("a", 1)).await, repository(&world, &store, ("b", 2)).await];
        // Another process of this host, which has died.
        let dead =
            VaultLock::take(&repository(&world, &store, ("a", 9)).await, LockKind::Exclusive).await.unwrap();
        drop(dead);
        let held = VaultLock::take(&here, LockKind::Exclusive).await.unwrap();
        assert_eq!(store.names(VaultFileKind::Lock).len(), 1);
        world.sleep(Duration::from_secs(20 * 60)).await;
        assert!(matches!(VaultLock::take(&elsewhere, LockKind::Shared).await, Err(VaultError::Locked(_))));
        held.refresh().await.unwrap();
        world.sleep(Duration::from_secs(20 * 60)).await;
        assert!(matches!(VaultLock::take(&elsewhere, LockKind::Shared).await, Err(VaultError::Locked(_))));
        world.sleep(Duration::from_secs(6 * 60)).await;
        assert!(matches!(held.refresh().await, Err(VaultError::LockExpired)));
        world.sleep(Duration::from_secs(6 * 60)).await;
        let other = VaultLock::take(&elsewhere, LockKind::Shared).await.unwrap();
        other.release().await.unwrap();
    });
}
