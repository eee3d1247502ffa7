//! The site of several pools' documents: what counts where they contradict each other.

use array::format::{PoolId, SiteId, VolumeId};
use control::{
    recovery::{
        PoolDocument, RecoveryKey,
        merging::{KeptPart, RecoveredPart, RecoveredPool, RecoveredSite, merged},
        sealing::{SealedSecret, SecretPlace},
    },
    site::adoption::FoundPool,
    view::VolumeView,
};
use plan::site::Site;
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

const SITE: SiteId = SiteId([9; 16]);
const OTHER_SITE: SiteId = SiteId([8; 16]);

fn volume(name: &str, id: u8) -> VolumeView {
    VolumeView {
        name: name.to_owned(),
        volume: VolumeId([id; 16]),
        size: ByteCount::mib(8),
        branch: 0,
        setting: array::pool::VolumeSetting::default(),
        snapshots: 0,
        group: None,
        left_by: None,
    }
}

/// A pool with a volume `a`, and the part of its group in a site file.
fn pool(number: u8, group: &str, (site, generation): (SiteId, u64), text: &str) -> RecoveredPool {
    let pool = PoolId([number; 16]);
    let site_text =
        format!("[[group]]\nname = '{group}'\n[[volume]]\nname = 'a'\ngroup = '{group}'\ngb = 1\n{text}");
    let document = PoolDocument {
        pool,
        group: group.to_owned(),
        key: None,
        secrets: Vec::new(),
        site: Site::from_toml(&site_text).unwrap(),
    };
    assert_eq!(PoolDocument::decode(&document.encode(), pool).unwrap(), document);
    let found = FoundPool {
        presented: Default::default(),
        name: group.to_owned(),
        folder: format!("/srv/{group}").into(),
        devices: Vec::new(),
        drives: 2,
        volumes: vec![volume("a", number)],
    };
    RecoveredPool { pool, found, kept: KeptPart::Document { site, generation, document: Box::new(document) } }
}

fn target(group: &str, name: &str, host: &str) -> String {
    format!(
        "[[target]]\nname = '{name}'\n[[target.unit]]\nnumber = 0\nvolume = '{group}/a'\n\
        [[initiator]]\nname = '{host}'\nuses = ['{name}']\n"
    )
}

fn site_of(pools: &[RecoveredPool]) -> RecoveredSite {
    merged(pools, None, None).unwrap()
}

#[test]
fn the_newest_part_counts_and_an_older_one_gives_no_rights_on_its_targets() {
    let pools = [
        pool(1, "logs", (SITE, 3), &target("logs", "disks", "iqn.x:revoked")),
        pool(2, "mail", (SITE, 4), &target("mail", "disks", "iqn.x:host")),
        pool(3, "copies", (SITE, 3), &target("copies", "copies", "iqn.x:HOST")),
    ];
    let RecoveredSite { site, kept, pools, lines, .. } = site_of(&pools);
    assert_eq!(kept, Some((SITE, 4)));
    assert!(
        matches!(&pools[0], RecoveredPart::Older { reason, .. } if reason.contains("change 3")),
        "{pools:?}"
    );
    assert_eq!(pools[1], RecoveredPart::Newest { group: "mail".to_owned() });
    let disks = site.targets.iter().find(|target| target.name == "disks").unwrap();
    assert_eq!(disks.units[0].volume, "mail/a");
    assert!(lines.iter().any(|line| line.starts_with("target \"disks\" of the group \"logs\"")), "{lines:?}");
    let [host] = &site.initiators[..] else { panic!("{:?}", site.initiators) };
    assert_eq!((&*host.name, &host.uses[..]), ("iqn.x:host", &["disks".to_owned(), "copies".to_owned()][..]));
    assert!(
        lines.iter().any(|line| line.contains("may use copies of the group \"copies\" as of before")),
        "{lines:?}"
    );
}

#[test]
fn a_schedule_of_other_times_keeps_its_own_number_of_snapshots() {
    let schedule = |group: &str, keep: u32| {
        format!("[[snapshots]]\nname = 'hourly'\nevery_hours = 1\nkeep = {keep}\nvolumes = ['{group}/a']\n")
    };
    let pools = [
        pool(1, "mail", (SITE, 4), &schedule("mail", 24)),
        pool(2, "logs", (SITE, 4), &schedule("logs", 24)),
        pool(3, "old", (SITE, 2), &schedule("old", 500)),
    ];
    let RecoveredSite { site, lines, .. } = site_of(&pools);
    let kept: Vec<_> = site.snapshots.iter().map(|one| (&*one.name, one.keep, one.volumes.len())).collect();
    assert_eq!(kept, [("hourly", Some(24), 2), ("hourly of old", Some(500), 1)]);
    assert!(lines.iter().any(|line| line.contains("goes on with them as \"hourly of old\"")), "{lines:?}");
}

#[test]
fn a_set_over_several_pools_comes_back_from_all_of_them_with_the_newest_rules() {
    let set = |name: &str, group: &str, schedule: &str| {
        let volumes = format!("volumes = ['{group}/a']\nlogs = ['{group}/a']\n");
        format!("[[protect]]\nset = '{name}'\n{volumes}schedules = ['{schedule}']\n")
    };
    let hourly = "[[snapshots]]\nname = 'hourly'\nevery_hours = 1\nkeep = 2\ngroups = ['mail']\n";
    let pools = [
        pool(1, "mail", (SITE, 4), &format!("{}{hourly}", set("post", "mail", "24x1h"))),
        pool(2, "logs", (SITE, 4), &set("post", "logs", "24x1h")),
        pool(3, "old", (SITE, 2), &set("post", "old", "9x1h")),
        pool(4, "odd", (SITE, 1), &set("hourly", "odd", "9x1h")),
        pool(5, "even", (SITE, 1), &hourly.replace("hourly", "post").replace("mail", "even")),
    ];
    let RecoveredSite { site, lines, .. } = site_of(&pools);
    let [post] = &site.sets[..] else { panic!("{:?}", site.sets) };
    assert_eq!(post.volumes, ["mail/a", "logs/a", "old/a"]);
    assert_eq!((&post.logs, &post.schedules[..]), (&post.volumes, &["24x1h".to_owned()][..]));
    assert_eq!(site.groups.len(), 5, "no pool stays away because of a name");
    for said in [
        "set \"post\": the schedules and rules of a newer part count",
        "set \"hourly\" of the group \"odd\" is left out: a newer part has a schedule",
        "snapshots \"post\" of the group \"even\" are left out: a newer part has a set",
    ] {
        assert!(lines.iter().any(|line| line.contains(said)), "{said}: {lines:?}");
    }
}

#[test]
fn pools_of_several_sites_are_told_apart_by_the_one_that_is_chosen() {
    let pools = [
        pool(1, "mail", (SITE, 4), &target("mail", "disks", "iqn.x:host")),
        pool(2, "theirs", (OTHER_SITE, 900), &target("theirs", "more", "iqn.x:stranger")),
        pool(3, "others", (OTHER_SITE, 900), ""),
    ];
    let refused = merged(&pools, None, None).err().unwrap().to_string();
    assert!(refused.starts_with("the pools are of 2 sites: ") && refused.contains("(mail)"), "{refused}");
    let RecoveredSite { site, kept, pools, .. } = merged(&pools, None, Some(SITE)).unwrap();
    assert_eq!(kept, Some((SITE, 4)));
    assert!(
        matches!(&pools[1], RecoveredPart::Unserved { reason, .. } if reason.contains("another site")),
        "{pools:?}"
    );
    assert_eq!((site.groups.len(), site.targets.len(), site.initiators.len()), (3, 1, 1));
}

#[test]
fn a_part_that_speaks_of_other_groups_or_contradicts_itself_keeps_no_other_from_coming_back() {
    let foreign = "[[group]]\nname = 'mail'\n[[volume]]\nname = 'a'\ngroup = 'mail'\ngb = 1\n\
        [[nbd]]\nname = 'open'\nvolume = 'mail/a'\n";
    let pools = [
        pool(1, "mail", (SITE, 4), &target("mail", "disks", "iqn.x:host")),
        pool(2, "logs", (SITE, 4), foreign),
        pool(3, "mail", (SITE, 2), ""),
    ];
    let RecoveredSite { site, pools, .. } = site_of(&pools);
    assert!(site.exports.is_empty(), "only the pool itself says what is served of it: {:?}", site.exports);
    assert!(
        matches!(&pools[2], RecoveredPart::LeftOut { reason } if reason.contains("which is newer")),
        "{pools:?}"
    );
    assert_eq!((site.groups.len(), site.targets.len()), (2, 1));
}

#[test]
fn a_document_of_another_pool_or_a_newer_program_is_refused_in_one_line() {
    let KeptPart::Document { document, .. } = pool(1, "mail", (SITE, 4), "").kept else { panic!() };
    let bytes = document.encode();
    let refused = PoolDocument::decode(&bytes, PoolId([2; 16])).unwrap_err().to_string();
    assert!(refused.contains("it was copied there"), "{refused}");
    let text = String::from_utf8(bytes.clone()).unwrap();
    let newer = text.replacen("version = 1", "version = 2", 1).replacen("group =", "unheard_of =", 1);
    let refused = PoolDocument::decode(newer.as_bytes(), document.pool).unwrap_err().to_string();
    assert!(refused.contains("has version 2; import it with the program that served it"), "{refused}");
    let mut random = world::Random::new(1, "damage");
    for _ in 0..2_000 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
        }
        damaged.truncate(1 + random.below(damaged.len() as u64) as usize);
        if let Err(refusal) = PoolDocument::decode(&damaged, document.pool) {
            assert!(!refusal.to_string().contains('\n'), "{refusal}");
        }
    }
}

#[test]
fn a_secret_counts_as_the_newest_change_has_it_and_opens_with_its_key_alone() {
    real::run(0, RealOptions::default(), async |world: World| {
        let (key, old_key) = (RecoveryKey::generate(&world), RecoveryKey::generate(&world));
        let host = "[[initiator]]\nname = 'iqn.x:host'\nuser = 'host'\nsecret_file = '/etc/secret'\n";
        let sealed = |number: u8, generation: u64, key: &RecoveryKey, secret: &[u8]| {
            let mut pool = pool(number, &format!("group-{number}"), (SITE, generation), host);
            let place = SecretPlace { site: SITE, pool: pool.pool, label: "initiator iqn.x:host" };
            let KeptPart::Document { document, .. } = &mut pool.kept else { panic!() };
            document.key = Some(key.id());
            document.secrets.push(SealedSecret::seal(&world, key, place, secret));
            pool
        };
        let pools = [sealed(1, 3, &old_key, b"old"), sealed(2, 4, &key, b"new"), sealed(3, 4, &key, b"new")];
        let site = merged(&pools, Some(&key), None).unwrap();
        assert!(site.lacking.is_empty(), "{:?}", site.lacking);
        let [secret] = &site.secrets[..] else { panic!("one secret") };
        assert_eq!(secret.bytes, b"new");
        let refused = merged(&pools, Some(&old_key), None).err().unwrap().to_string();
        assert!(refused.contains(&format!("the secrets were sealed with {}", key.id())), "{refused}");
        let without = merged(&pools, None, None).unwrap();
        assert!(without.secrets.is_empty() && without.lacking.len() == 1, "{:?}", without.lacking);
        // A document copied from another pool: its secrets do not open there.
        let mut copied = sealed(4, 4, &key, b"new");
        let (KeptPart::Document { document, .. }, KeptPart::Document { document: from, .. }) =
            (&mut copied.kept, &pools[1].kept)
        else {
            panic!()
        };
        document.secrets.clone_from(&from.secrets);
        let site = merged(&[copied], Some(&key), None).unwrap();
        assert!(site.secrets.is_empty() && site.lacking.len() == 1, "{:?}", site.lacking);
    });
}
