//! Tables of sets, read and refused.

use super::{super::set_texts::set_texts, *};
use plan::site::Site;
use protect::backup::hooks::HookPhase;

const SITE: &str = "
    [[group]]
    name = 'dbs'
    [[group]]
    name = 'logs'
    [[group]]
    name = 'elsewhere'
    [[volume]]
    name = 'store'
    group = 'dbs'
    [[volume]]
    name = 'log'
    group = 'logs'
    [[volume]]
    name = 'far'
    group = 'elsewhere'
    [[volume]]
    name = 'folder'
    path = '/mnt/x'
";
const MAIL: &str = "
    [[protect]]
    set = 'mail'
    volumes = ['store', 'logs/log']
    logs = ['log']
    schedules = ['60x1min', '24x1h', '30x1d@02:30', '24x1month']
    zone = 'Europe/Berlin'
    freeze_every = '2h'
    [protect.freeze]
    kind = 'hooks'
    prepare = ['/etc/mail/flush']
    before = ['/etc/mail/quiet', 'all']
    after = ['/etc/mail/go']
    timeout = '1500ms'
    user = 'mail'
    worth = 'filesystem'
    mounts = ['/srv/mail/spool', '/srv/mail']
    budget = '20s'
    uncovered = 'crash'
    [protect.keep]
    at_least = 3
    not_before = '7d'
    at_most = '750d'
    on_full = 'keep'
    lock = '14d'
    [protect.verify]
    level = 'recover'
    at = '22:00'
    until = '06:00'
    throttle = '200MB/s'
    [protect.vault]
    to = 's3://vault/mail'
    copy = '14x1d@03:00'
    password_file = '/etc/spindle/vault'
    throttle = '50MB/s'
    [protect.restore]
    before = ['/etc/mail/stop', 'hard']
    after = ['/etc/mail/start']
    timeout = '5min'
";
const PLAIN: &str =
    "[[protect]]\nset = 'queue'\nvolumes = ['store']\nschedules = ['24x1h']\n[protect.freeze]\n";

fn read(tables: &str) -> Result<Vec<WantedSet>, String> {
    let site = Site::from_toml(&format!("{SITE}{tables}")).map_err(|error| error.to_string())?;
    wanted_sets(&SiteIndex::of(&site)).map_err(|refusal| refusal.to_string())
}

#[test]
fn a_set_has_what_its_table_says() {
    let sets = read(&format!("{MAIL}{PLAIN}")).unwrap();
    let [mail, queue] = &sets[..] else { panic!("{sets:?}") };
    let volume = |pool: &str, volume: &str, is_log| SetVolume {
        pool: pool.to_owned(),
        volume: volume.to_owned(),
        is_log,
    };
    assert_eq!(mail.settings.volumes, [volume("dbs", "store", false), volume("logs", "log", true)]);
    assert_eq!(
        mail.settings.schedules.to_string(),
        "60x1min, 24x1h, 30x1d@02:30, 24x1month in Europe/Berlin"
    );
    let limit = FreezeLimit { every: Duration::from_secs(7200), has_freeze: true, has_logs: true };
    assert_eq!(mail.settings.freeze_limit, limit);
    assert_eq!(mail.settings.policy.budget(), Duration::from_secs(20));
    assert_eq!(mail.settings.policy.uncovered, UncoveredCut::KeepAsCrash);
    assert_eq!((mail.settings.keep.at_least(), mail.settings.keep.lock_s()), (3, Some(14 * 86_400)));
    let WantedFreeze::Here { hooks: Some(hooks), mounts, .. } = &mail.freeze else { panic!("{mail:?}") };
    assert_eq!(mounts, &["/srv/mail/spool", "/srv/mail"].map(PathBuf::from));
    assert_eq!(hooks.timeout(HookPhase::Thaw), Duration::from_millis(1500));
    assert_eq!((hooks.user.as_deref(), hooks.consistency), (Some("mail"), Consistency::Filesystem));
    let programs = [HookPhase::Prepare, HookPhase::Freeze, HookPhase::Thaw, HookPhase::After]
        .map(|phase| hooks.command(phase).map(HookCommand::program));
    let expected = [Some("/etc/mail/flush"), Some("/etc/mail/quiet"), Some("/etc/mail/go"), None];
    assert_eq!(programs, expected);
    assert_eq!((&queue.freeze, queue.settings.freeze_limit.has_freeze), (&WantedFreeze::Nothing, false));
    assert_eq!(
        queue.settings.policy.uncovered,
        UncoveredCut::KeepAsCrash,
        "nothing is frozen, and cuts are kept"
    );
    assert_eq!(queue.settings.schedules.zone().name(), "UTC");
}

#[test]
fn logs_are_cut_from_one_full_backup_to_the_next() {
    for (schedules, every, expected) in [
        ("'24x1h', '30x1d'", "5min", "24x1h, 30x1d, 13x5min in UTC"),
        ("'30x1d'", "1min", "30x1d, 120x1min in UTC"),
        ("'60x1min', '24x1h'", "10min", "60x1min, 24x1h, 7x10min in UTC"),
    ] {
        let table = format!(
            "[[protect]]\nset = 'mail'\nvolumes = ['store', 'log']\nlogs = ['log']\nschedules = [{schedules}]\n\
             logs_every = '{every}'\n"
        );
        let sets = read(&table).unwrap();
        assert_eq!(sets[0].settings.schedules.to_string(), expected);
        assert!(sets[0].settings.freeze_limit.has_logs);
    }
    let alone = "[[protect]]\nset = 'mail'\nvolumes = ['store', 'log']\nlogs = ['log']\nschedules = ['60x1min']\n\
                 logs_every = '5min'\n";
    assert!(read(alone).unwrap_err().contains("logs_every needs full backups; add a schedule"));
}

#[test]
fn wishes_that_cannot_be_done_are_refused_in_one_line() {
    for (from, to, refusal) in [
        ("set = 'mail'", "set = 'a/b'", "protect \"a/b\": its backups cannot be named by this name; choose"),
        ("'store', 'logs/log'", "'store', 'log', 'folder'", "volume \"folder\" says no group, so it is in"),
        ("'24x1h'", "'24'", "protect \"mail\": \"24\" is no schedule; say COUNTxPERIOD"),
        ("'60x1min', '24x1h', '30x1d@02:30', '24x1month'", "", "no schedule is given; say one to eight"),
        ("Europe/Berlin", "Berlin", "\"Berlin\" is no time zone"),
        (
            "'2h'",
            "'2h'\n    logs_every = '1h'",
            "logs_every = \"1h\" is no time below 15 minutes; say 1min to 14min",
        ),
        ("'2h'", "'2h'\n    logs_every = '1min'", "logs_every = \"1min\" is a schedule already; leave one"),
        ("logs = ['log']", "logs_every = '5min'", "logs_every needs logs; say in logs which"),
        ("'2h'", "'2'", "freeze_every = \"2\" is no span; say a number and ms, s, min, h or d"),
        ("kind = 'hooks'", "kind = 'vss'", "freeze: kind = \"vss\" is unknown; say \"none\""),
        ("kind = 'hooks'", "kind = 'maildb'", "prepare has no effect with kind = \"maildb\""),
        ("kind = 'hooks'", "", "freeze: prepare has no effect with kind = \"none\"; say kind"),
        ("kind = 'hooks'", "kind = 'filesystem'", "prepare has no effect with kind = \"filesystem\""),
        ("before = ['/etc/mail/quiet', 'all']", "", "freeze: kind = \"hooks\" needs before; name the"),
        ("after = ['/etc/mail/go']", "", "freeze: kind = \"hooks\" needs after"),
        ("'/etc/mail/go'", "'go'", "freeze: after: the hook \"go\" is no absolute path"),
        ("'1500ms'", "'16s'", "freeze: timeout: a timeout of 16000 ms for hooks is impossible"),
        ("'1500ms'", "'0s'", "timeout = \"0s\" is no span"),
        ("'1500ms'", "'99999999999999999999s'", "is no span"),
        ("worth = 'filesystem'", "worth = 'crash'", "worth = \"crash\" is unknown; say \"application\""),
        ("'/srv/mail/spool', ", "'mail', ", "mounts has \"mail\", which is no absolute path"),
        ("'/srv/mail/spool', ", "'/srv/mail', ", "mounts has \"/srv/mail\" twice"),
        ("'20s'", "'21s'", "freeze: budget: a freeze of 21000 ms is impossible; it must be"),
        ("'crash'", "'label'", "uncovered = \"label\" is unknown; say \"remove\" or \"crash\""),
        ("at_least = 3", "at_least = 0", "protect \"mail\": keep: at_least = 0 is impossible"),
        ("'750d'", "'13d'", "keep: lock = 14d and at_most = 13d cannot both be true"),
        ("'750d'", "'500d'", "24x1month reaches back"),
        (
            "[protect.verify]",
            "[protect.drill]\nevery = '1w'\n[protect.verify]",
            "drill: the agent that keeps the",
        ),
        ("'/etc/mail/stop', ", "'stop', ", "restore: before: the hook \"stop\" is no absolute path"),
        ("'5min'", "'soon'", "restore: timeout = \"soon\" is no span"),
        ("copy = '14x1d@03:00'", "", "vault: copy: \"\" is no schedule"),
        ("'s3://vault/mail'", "'vault'", "vault: to = \"vault\" is no place"),
        ("level = 'recover'", "", "verify: level = \"\" is unknown; say \"chain\""),
        ("'06:00'", "'22:00'", "verify: at and until are both 22:00"),
        ("level = 'recover'", "level = 'recover'\nelsewhere = true", "verify: elsewhere has no effect"),
        (
            "at = '22:00'",
            "at = 'replica 22:00'",
            "verify: at = \"replica\" has no effect: a set that an agent keeps",
        ),
    ] {
        let refused = read(&MAIL.replacen(from, to, 1)).unwrap_err();
        assert!(refused.contains(refusal), "{from} → {to}: {refused}");
        assert!(refused.starts_with("protect \""), "{refused}");
    }
    let only_after = MAIL.replacen("at_least = 3", "at_least = 3\nonly_after = 'verified'", 1);
    read(&only_after).expect("it is verified");
    let (unverified, _) = only_after.split_once("[protect.verify]").expect("it is");
    let refused = read(unverified).unwrap_err();
    assert!(refused.contains("keep: only_after = \"verified\" needs results of verifications"), "{refused}");
    for (key, refusal) in [
        ("[protect.drill]\nevery = '1h'", "drill: every = \"1h\" is no period of days"),
        ("[protect.drill]\nevery = '1w'\nat = '25:00'", "drill: \"25:00\" is no time of a period of 1w"),
        ("mounts = ['/x']", "mounts has no effect with kind = \"none\""),
        ("budget = '5s'", "budget has no effect with kind = \"none\""),
        ("uncovered = 'remove'", "uncovered has no effect with kind = \"none\""),
        ("kind = 'filesystem'", "kind = \"filesystem\" needs mounts; name the mount points"),
        ("kind = 'maildb'", "kind = \"maildb\" needs sockets; name those of the databases"),
        ("kind = 'maildb'\nsockets = ['mail.sock']", "sockets has \"mail.sock\", which is no absolute path"),
        ("kind = 'maildb'\nsockets = ['/s']\nby = 'me'", "by = \"me\" is unknown; say \"server\""),
        ("sockets = ['/s']", "sockets has no effect with kind = \"none\""),
    ] {
        let refused = read(&format!("{PLAIN}{key}\n")).unwrap_err();
        assert!(refused.contains(refusal), "{key}: {refused}");
    }
}

#[test]
fn sets_of_other_sites_are_left_out_and_those_of_two_sites_are_named() {
    let sets = read(
        "[[protect]]\nset = 'here'\nvolumes = ['store', 'log']\nschedules = ['1x1d']\n\
         [[protect]]\nset = 'there'\nvolumes = ['far']\nschedules = ['1x1d']\n\
         [[protect]]\nset = 'both'\nvolumes = ['store', 'far']\nschedules = ['1x1d']\n",
    );
    let (sets, notes) = sets_of_pools(sets.unwrap(), |pool| pool != "elsewhere");
    let names: Vec<&str> = sets.iter().map(|set| set.settings.name.as_str()).collect();
    assert_eq!(names, ["here"]);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("protect \"both\": no backups are made, for elsewhere/far is at"), "{note}");
}

#[test]
fn snapshots_with_the_schedules_of_sets_are_a_set_that_nothing_freezes() {
    let sets = read(
        "[[snapshots]]\nname = 'hourly'\ngroups = ['dbs']\nvolumes = ['logs/log']\nschedules = ['24x1h', '14x1d@02:30']\n\
         zone = 'Europe/Berlin'\n[[snapshots]]\nname = 'old'\ngroups = ['dbs']\nevery_hours = 1\nkeep = 2\n",
    )
    .unwrap();
    let [hourly] = &sets[..] else { panic!("{sets:?}") };
    assert_eq!((hourly.settings.name.as_str(), &hourly.freeze), ("hourly", &WantedFreeze::Nothing));
    let volumes: Vec<String> = hourly.settings.volumes.iter().map(ToString::to_string).collect();
    assert_eq!(volumes, ["dbs/store", "logs/log"]);
    assert_eq!(hourly.settings.schedules.zone().to_string(), "Europe/Berlin");
    assert!(hourly.settings.verification.is_none());
    let refused =
        |keys: &str| read(&format!("[[snapshots]]\nname = 'x'\ngroups = ['dbs']\n{keys}")).unwrap_err();
    assert!(refused("schedules = ['1x1d']\nkeep = 3").contains("say schedules and keep"));
    assert!(refused("zone = 'UTC'\nkeep = 3").contains("zone has no effect without schedules"));
    assert!(refused("schedules = ['often']").contains("often"), "{}", refused("schedules = ['often']"));
    let two = "[[protect]]\nset = 'x'\nvolumes = ['store']\nschedules = ['1x1d']\n[[snapshots]]\nname = 'x'\n\
               groups = ['dbs']\nschedules = ['1x1d']\n";
    assert!(read(two).unwrap_err().contains("is called so too"));
}

#[test]
fn whatever_a_table_says_is_among_its_words() {
    let words = |tables: &str| {
        let site = Site::from_toml(&format!("{SITE}{tables}")).unwrap();
        let sets = wanted_sets(&SiteIndex::of(&site)).unwrap();
        set_texts(&SiteIndex::of(&site), &sets).remove(&("set", "mail".to_owned())).unwrap()
    };
    assert_eq!(
        words(MAIL),
        "60x1min, 24x1h, 30x1d@02:30, 24x1month in Europe/Berlin, frozen by hooks, every 2h, prepare /etc/mail/flush, \
         before /etc/mail/quiet all, after /etc/mail/go, timeout 1500ms, user mail, worth filesystem, mounts \
         /srv/mail/spool /srv/mail, budget 20s, uncovered crash: dbs/store, logs/log (logs); keep at_least 3, \
         not_before 7d, at_most 750d, on_full keep, lock 14d; verify recover at 22:00 until 06:00, \
         200MB/s; vault 14x1d@03:00 to s3://vault/mail, password in /etc/spindle/vault, 50MB/s; restore before /etc/mail/stop hard, after /etc/mail/start, timeout 5min"
    );
    let values = |text: &str| -> Vec<String> {
        let table: toml::Table = text.parse().unwrap();
        let table = table["protect"][0].clone();
        let mut values = Vec::new();
        collect(&table, &mut values);
        values
    };
    fn collect(value: &toml::Value, values: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => table.values().for_each(|value| collect(value, values)),
            toml::Value::Array(all) => all.iter().for_each(|value| collect(value, values)),
            toml::Value::String(text) => values.push(text.clone()),
            other => values.push(other.to_string()),
        }
    }
    let text = words(MAIL);
    let missing: Vec<String> =
        values(MAIL).into_iter().filter(|value| value != "mail" && !text.contains(value)).collect();
    assert_eq!(missing, [""; 0]);
}
