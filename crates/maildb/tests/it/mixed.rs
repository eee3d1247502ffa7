use crate::model::{self, Mix, Rows};
use maildb::PageSize;
use world::{ByteCount, Random, real};

/// Changes, closes, checks, opens again and compares; small pages and rows that make three levels.
fn mixed_run(page_size: PageSize, changes: usize, body_bytes_max: u64, levels_min: u32) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_owned();
    real::run(1, real::RealOptions::default(), async |world| {
        let mut rows = Rows::new();
        let mut random = Random::new(42, "mixed");
        let config = || model::config(page_size, ByteCount(256 * page_size.bytes() as u64));
        for (round, delete_percent) in [15.0, 15.0, 60.0].into_iter().enumerate() {
            let instance = model::open(&world, &path, 1, config()).await;
            assert!(instance.recovery().clean, "round {round}: {:?}", instance.recovery());
            let database = &instance.databases()[0];
            let table = model::mail_table(database).await;
            let mut session = instance.session();
            let mix = Mix { body_bytes_max, mailboxes: 50, delete_percent };
            model::change_at_random(&mut session, &table, &mut rows, &mut random, changes, mix).await;
            let found = model::read_all(database, &table).await;
            assert!(found == rows, "round {round}: {} rows found, {} expected", found.len(), rows.len());
            println!("round {round}: {:?}", instance.statistics());
            drop(session);
            instance.close().await.expect("the group closes");
            let deep = model::check_whole(&path, "priv1.edb", page_size).await;
            println!("round {round}: {deep:?}");
            assert!(deep.levels_max >= levels_min, "{deep:?}");
        }
    });
}

#[test]
fn mixed_changes_at_4_kib_agree_with_the_model() {
    mixed_run(PageSize::Kib4, 6000, 1000, 3);
}

#[test]
fn mixed_changes_at_8_kib_agree_with_the_model() {
    if !crate::is_full_run("mixed changes at 8 KiB are of") {
        return;
    }
    mixed_run(PageSize::Kib8, 6000, 3000, 2);
}

#[test]
fn mixed_changes_at_32_kib_agree_with_the_model() {
    if !crate::is_full_run("mixed changes at 32 KiB are of") {
        return;
    }
    mixed_run(PageSize::Kib32, 4000, 8000, 2);
}
