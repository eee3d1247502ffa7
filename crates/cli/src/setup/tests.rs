//! Site files for disks that are described here.

use super::{
    division::{DiskDivision, LogDisks, SetupDisk, SetupStorage, VolumeSizes},
    host_commands::host_commands,
    site_text::{SetupHost, SetupMail, SetupSite},
};
use expect_test::expect;
use plan::site::Site;
use std::path::PathBuf;
use world::{Address, ByteCount};

const TB: u64 = 1_000_000_000_000;

/// So many rotating disks of 4 TB.
fn rotating(count: usize) -> Vec<SetupDisk> {
    let disk = |number: usize| SetupDisk {
        path: PathBuf::from(format!("/dev/disk/by-id/wwn-0x5000c500a1b2c3{number:02}")),
        size: ByteCount(4 * TB),
        is_rotational: Some(true),
    };
    (1..=count).map(disk).collect()
}

fn divided(disks: Vec<SetupDisk>, logs: LogDisks) -> Result<DiskDivision, String> {
    let storage = SetupStorage::Disks { disks, logs };
    DiskDivision::of(&storage, VolumeSizes::default()).map_err(|refusal| refusal.to_string())
}

fn site(division: DiskDivision) -> SetupSite {
    SetupSite {
        division,
        host: SetupHost { iqn: "iqn.2026-11.org.example:mail1".to_owned(), name: "mail1".to_owned() },
        address: Address::Tcp { host: "192.0.2.10".to_owned(), port: 3260 },
        mail: Some(SetupMail {
            to: "ops@example.org".to_owned(),
            server: Address::Tcp { host: "mail.example.org".to_owned(), port: 25 },
            is_encrypted: true,
        }),
    }
}

/// The site file for so many equal disks, which the reader of site files takes.
#[track_caller]
fn text(count: usize) -> String {
    let text = site(divided(rotating(count), LogDisks::Chosen).unwrap()).to_text();
    let read = Site::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let devices: usize = read.groups.iter().map(|group| group.devices.len()).sum();
    assert_eq!(devices, count, "each disk once");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    text
}

/// The part that differs: from the pools to the volumes.
fn pools_of(text: &str) -> &str {
    let from = text.find("nbd = \"none\"\n\n").unwrap() + 14;
    &text[from..text.find("# Backups").unwrap()]
}

#[test]
fn two_disks_make_one_pool_for_databases_and_logs() {
    expect![[r##"
        # A mail site, made by 'spindle setup'. docs/site.md describes every key; after a change:
        #   spindle apply FILE --dry-run      shows what would change
        #   systemctl reload spindle          applies it under the host's sessions, or send the server SIGHUP
        name = "mail"

        # Hosts reach the volumes here. Others reach nothing: NBD is off, and the API is a socket of this machine.
        [serve]
        iscsi = "192.0.2.10:3260"
        nbd = "none"

        # databases and logs share one pool: a pool needs two disks, and there are 2; with four, logs lie apart
        # pool mail: 2 drives, 3.64 TiB of room; too few to keep room for a lost drive
        [[group]]
        name = "mail"
        raid = "raid1"
        devices = [
            "/dev/disk/by-id/wwn-0x5000c500a1b2c301",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c302",
        ]
        spares = 0

        # Volumes are thin: they take what is written, and share the room of their pool with their backups.
        [[volume]]
        name = "store"
        role = "database"
        group = "mail"
        gb = 1676

        [[volume]]
        name = "log"
        role = "log"
        group = "mail"
        gb = 558

        # Backups of all volumes at one moment: one an hour, of which 24 stay, and one a day, of which 14 stay. Nothing
        # freezes the applications: each backup is what a crash at that moment would leave. To have it freeze them:
        # [[protect]] (docs/protect.md).
        [[snapshots]]
        name = "backups"
        groups = ["mail"]
        schedules = ["24x1h", "14x1d"]
        # zone = "Europe/Berlin"

        # Units of a target are of one pool.
        [[target]]
        name = "mail"

        [[target.unit]]
        number = 0
        volume = "mail/store"

        [[target.unit]]
        number = 1
        volume = "mail/log"

        # The host logs in with this user and the secret in the file, and sees nothing else. Other hosts are refused.
        [[initiator]]
        name = "iqn.2026-11.org.example:mail1"
        user = "mail1"
        secret_file = "mail1.chap-secret"
        uses = ["mail"]

        # Warnings and errors go there; 'spindle event test' sends a test message.
        [[notify]]
        name = "mail"
        kind = "mail"
        smtp = "mail.example.org:25"
        tls = true
        from = "ops@example.org"
        to = ["ops@example.org"]
    "##]].assert_eq(&text(2));
}

#[test]
fn four_disks_make_a_pool_for_databases_and_one_for_logs() {
    expect![[r##"
        # logs have a pool of their own, so that a lost pool does not take databases and their logs together: the 2
        #   last of 4 disks (a quarter, at least two), since logs need less room
        # pool mail: 2 drives, 3.64 TiB of room; too few to keep room for a lost drive
        # pool logs: 2 drives, 3.64 TiB of room; too few to keep room for a lost drive
        [[group]]
        name = "mail"
        raid = "raid1"
        devices = [
            "/dev/disk/by-id/wwn-0x5000c500a1b2c301",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c302",
        ]
        spares = 0

        [[group]]
        name = "logs"
        raid = "raid1"
        devices = [
            "/dev/disk/by-id/wwn-0x5000c500a1b2c303",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c304",
        ]
        spares = 0

        # Volumes are thin: they take what is written, and share the room of their pool with their backups.
        [[volume]]
        name = "store"
        role = "database"
        group = "mail"
        gb = 2235

        [[volume]]
        name = "log"
        role = "log"
        group = "logs"
        gb = 2235

    "##]].assert_eq(pools_of(&text(4)));
}

#[test]
fn of_twelve_disks_a_quarter_is_for_logs_and_the_databases_keep_room_for_a_lost_drive() {
    expect![[r##"
        # logs have a pool of their own, so that a lost pool does not take databases and their logs together: the 3
        #   last of 12 disks (a quarter, at least two), since logs need less room
        # pool mail: 9 drives, 14.6 TiB of room, besides that kept for a lost drive
        # pool logs: 3 drives, 5.46 TiB of room; too few to keep room for a lost drive
        [[group]]
        name = "mail"
        raid = "raid10"
        devices = [
            "/dev/disk/by-id/wwn-0x5000c500a1b2c301",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c302",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c303",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c304",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c305",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c306",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c307",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c308",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c309",
        ]
        spares = 1

        [[group]]
        name = "logs"
        raid = "raid10"
        devices = [
            "/dev/disk/by-id/wwn-0x5000c500a1b2c310",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c311",
            "/dev/disk/by-id/wwn-0x5000c500a1b2c312",
        ]
        spares = 0

        # Volumes are thin: they take what is written, and share the room of their pool with their backups.
        [[volume]]
        name = "store"
        role = "database"
        group = "mail"
        gb = 8940

        [[volume]]
        name = "log"
        role = "log"
        group = "logs"
        gb = 3352

    "##]].assert_eq(pools_of(&text(12)));
}

fn counts(division: &DiskDivision) -> Vec<(&'static str, usize, u32)> {
    division.pools.iter().map(|pool| (pool.name, pool.drive_count(), pool.spares)).collect()
}

#[test]
fn disks_of_two_kinds_do_not_share_a_pool() {
    let mut disks = rotating(6);
    for disk in &mut disks[..2] {
        (disk.size, disk.is_rotational) = (ByteCount(TB), Some(false));
    }
    let small_flash = divided(disks.clone(), LogDisks::Chosen).unwrap();
    assert_eq!(counts(&small_flash), [("mail", 4, 1), ("logs", 2, 0)]);
    assert!(
        small_flash.reasons[0].contains("the 2 disks that are not rotating"),
        "{:?}",
        small_flash.reasons
    );
    disks[..2].iter_mut().for_each(|disk| disk.size = ByteCount(20 * TB));
    let large_flash = divided(disks, LogDisks::Chosen).unwrap();
    assert_eq!(counts(&large_flash), [("mail", 2, 0), ("logs", 4, 1)]);
}

#[test]
fn the_smallest_disks_are_for_logs_and_disks_that_are_named_come_first() {
    let mut disks = rotating(5);
    disks[1].size = ByteCount(TB);
    let chosen = divided(disks.clone(), LogDisks::Chosen).unwrap();
    let text = site(chosen).to_text();
    let logs = &text[text.find("name = \"logs\"").unwrap()..];
    assert!(logs.find("c302").unwrap() < logs.find("c305").unwrap(), "{text}");
    let named = LogDisks::Named(disks[2..5].iter().map(|disk| disk.path.clone()).collect());
    assert_eq!(counts(&divided(disks.clone(), named).unwrap()), [("mail", 2, 0), ("logs", 3, 0)]);
    assert_eq!(counts(&divided(disks, LogDisks::None).unwrap()), [("mail", 5, 1)]);
}

#[test]
fn too_few_disks_and_too_large_volumes_are_refused() {
    assert!(divided(rotating(1), LogDisks::Chosen).unwrap_err().contains("a pool needs two disks"));
    let disks = rotating(3);
    let one = LogDisks::Named(vec![disks[0].path.clone()]);
    assert!(divided(disks.clone(), one).unwrap_err().contains("the pool of the logs would have one disk"));
    let all = LogDisks::Named(disks.iter().map(|disk| disk.path.clone()).collect());
    assert!(
        divided(disks.clone(), all).unwrap_err().contains("the pool of the databases would have no disk")
    );
    let storage = SetupStorage::Disks { disks, logs: LogDisks::Chosen };
    let sizes = VolumeSizes { databases: Some(9_000.0), logs: None };
    let refused = DiskDivision::of(&storage, sizes).unwrap_err().to_string();
    assert!(refused.contains("does not fit the pool mail") && refused.contains("⟨database-gb⟩"), "{refused}");
}

#[test]
fn without_mail_the_file_shows_how_to_have_it() {
    let with = site(divided(rotating(2), LogDisks::Chosen).unwrap());
    let without = SetupSite { mail: None, ..with };
    let text = without.to_text();
    assert!(Site::from_toml(&text).unwrap().notifiers.is_empty());
    let shown: String = text
        .lines()
        .skip_while(|line| *line != "# [[notify]]")
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    assert_eq!(Site::from_toml(&shown).unwrap().notifiers.len(), 1, "{shown}");
}

#[test]
fn the_commands_of_a_host_lead_to_each_volume() {
    let site = site(divided(rotating(4), LogDisks::Chosen).unwrap());
    expect![[r#"
        grep -x InitiatorName=iqn.2026-11.org.example:mail1 /etc/iscsi/initiatorname.iscsi    # else write it there, and: systemctl restart iscsid
        portal=192.0.2.10:3260
        user=mail1 secret=AbCdEfGhIjKlMnOp
        pairs="authmethod=CHAP username=$user password=$secret"
        iscsiadm -m discoverydb -t st -p $portal -o new
        for pair in $pairs; do
          iscsiadm -m discoverydb -t st -p $portal -o update -n discovery.sendtargets.auth.${pair%%=*} -v ${pair#*=}
        done
        iscsiadm -m discoverydb -t st -p $portal --discover
        for target in iqn.2026-11.org.spindle:mail iqn.2026-11.org.spindle:logs; do
          for pair in $pairs; do
            iscsiadm -m node -T $target -p $portal -o update -n node.session.auth.${pair%%=*} -v ${pair#*=}
          done
          iscsiadm -m node -T $target -p $portal -o update -n node.startup -v automatic
          iscsiadm -m node -T $target -p $portal -l
        done
        sleep 2; udevadm settle
        mount_unit() {    # target, unit, folder
          disk=$(find -L /dev/disk/by-id -name 'wwn-*' -samefile /dev/disk/by-path/ip-$portal-iscsi-$1-lun-$2)
          mkfs.ext4 $disk && mkdir -p $3 && echo "$disk $3 ext4 _netdev,nofail 0 2" >> /etc/fstab && mount $3
        }
        mount_unit iqn.2026-11.org.spindle:mail 0 /srv/mail/store
        mount_unit iqn.2026-11.org.spindle:logs 0 /srv/mail/log"#]].assert_eq(&host_commands(&site, "AbCdEfGhIjKlMnOp").join("\n"));
}
