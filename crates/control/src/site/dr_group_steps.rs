//! DR groups in the plan of a site: those that are made, stay, or cannot become as the file says. Pure.

use super::{
    changes::{KnownSite, SiteChanges, SiteStep},
    known_dr_group::{KnownDrGroup, KnownDrGroups, fixed_difference},
    wanted::WantedSite,
    wanted_dr_group::WantedDrGroup,
    wanted_pool::{WantedPool, WantedVolume},
};
use report::Refusal;
use std::collections::BTreeSet;

impl SiteChanges {
    /// Adds the steps that make groups, after all others: their volumes and the rights of their hosts are there then.
    pub(super) fn add_dr_groups(&mut self, known: &KnownSite, wanted: &WantedSite) {
        let Some(groups) = &known.dr_groups else { return };
        let renamed = |pool: &str, name: &str| {
            let volumes =
                wanted.pools.iter().filter(|known| known.name == pool).flat_map(|pool| &pool.volumes);
            let mut renamed = volumes.filter(|volume| volume.was.as_deref() == Some(name));
            renamed.next().map_or(name.to_owned(), |volume| volume.name.clone())
        };
        for group in &wanted.dr_groups {
            match groups.find(&group.name) {
                Some(there) => match fixed_difference(group, there, renamed) {
                    Some(refusal) => self.fixed_dr_groups.push(refusal),
                    None => self.change_dr_group(group, there),
                },
                None => self.make_dr_group(group, (known, groups)),
            }
        }
        let is_named = |name: &str| wanted.dr_groups.iter().any(|group| group.name == name);
        let is_of_site = |pool: &str| wanted.pools.iter().any(|known| known.name == pool);
        let is_of_site = |group: &KnownDrGroup| group.places.iter().any(|place| is_of_site(&place.pool));
        for group in groups.groups.iter().filter(|group| is_of_site(group) && !is_named(&group.name)) {
            let (name, peer) = (&group.name, &group.peer);
            self.kept.push(format!(
                "DR group {name}, with {peer}: it stays; 'spindle dr remove {name}' takes it apart"
            ));
        }
        self.refuse_sets_without_replica((known, groups), wanted, renamed);
    }

    /// Adds the step to another mode. The site that gets the copies leaves that to the other one, whose file has the group.
    fn change_dr_group(&mut self, group: &WantedDrGroup, there: &KnownDrGroup) {
        let Some(to) = group.mode_after(&there.mode).filter(|to| *to != there.mode) else { return };
        let (name, from) = (group.name.clone(), there.mode.clone());
        if group.to.is_empty() || !there.is_whole() {
            return;
        }
        if group.is_of_other_site {
            let peer = &there.peer;
            self.notes.push(format!(
                "DR group {name:?}: it is {from}, and this file says {to}: the file of {peer} changes it, or 'spindle dr set' there"
            ));
            return;
        }
        let pools = there.places.iter().map(|place| place.pool.clone()).collect();
        self.steps.push(SiteStep::ChangeDrGroup { name, pools, from, to });
    }

    /// At a start groups stay as they are, as all that was changed online does.
    pub(super) fn leave_dr_groups(&mut self) {
        self.steps.retain(|step| {
            let SiteStep::ChangeDrGroup { name, from, to, .. } = step else { return true };
            self.notes.push(format!(
                "DR group {name:?}: it is {from}, and stays so; the file says {to}, to which 'spindle apply' changes it"
            ));
            false
        });
    }

    /// Refuses verifications at the replica of sets that no site follows, as far as all pools of the set are open.
    fn refuse_sets_without_replica(
        &mut self,
        (known, groups): (&KnownSite, &KnownDrGroups),
        wanted: &WantedSite,
        renamed: impl Fn(&str, &str) -> String,
    ) {
        let there = groups.groups.iter().flat_map(KnownDrGroup::volumes);
        let there = there.map(|(pool, volume)| (pool.clone(), renamed(pool, volume)));
        let in_file = wanted.dr_groups.iter().flat_map(WantedDrGroup::own_volumes);
        let in_file = in_file.map(|(pool, volume)| (pool.clone(), volume.clone()));
        let replicated: BTreeSet<(String, String)> = there.chain(in_file).collect();
        // Volumes of closed pools are not known.
        let is_unknown =
            |pool: &String| groups.damaged.contains(pool) || matches!(known.pools.get(pool), Some(None));
        for set in wanted.sets.iter().map(|set| &set.settings) {
            let is_at_replica = set.verification.as_ref().is_some_and(|policy| policy.is_at_replica());
            let may_follow = set.volumes.iter().any(|one| {
                is_unknown(&one.pool) || replicated.contains(&(one.pool.clone(), one.volume.clone()))
            });
            if is_at_replica && !may_follow {
                self.fixed_dr_groups.push(Refusal::new(
                    format!("protect {:?}: verify: at = \"replica\": its volumes lie in no DR group", set.name),
                    "make the group first, in [[replication.dr_group]] or with 'spindle dr create', or leave at out",
                ));
            }
        }
    }

    fn make_dr_group(&mut self, group: &WantedDrGroup, (known, groups): (&KnownSite, &KnownDrGroups)) {
        // In a pool that is not open it may be there.
        let is_closed = |pool: &String| matches!(known.pools.get(pool), Some(None));
        let mut pools = group.places.iter().map(|place| &place.pool);
        let is_unclear = pools.clone().any(|pool| is_closed(pool) || self.refused.contains_key(pool));
        if group.is_of_other_site || group.places.is_empty() || is_unclear {
            return;
        }
        let name = &group.name;
        let damaged = pools.find(|pool| groups.damaged.contains(*pool));
        let problem = match (damaged, group.to.is_empty(), group.kind) {
            (Some(pool), ..) => {
                format!("a record of a group in pool {pool} cannot be used; see 'spindle dr status'")
            }
            (None, true, _) => "it says no to".to_owned(),
            (None, false, None) => "neither it nor [replication] says a kind that storage has".to_owned(),
            (None, false, Some(_)) => return self.steps.push(SiteStep::MakeDrGroup(Box::new(group.clone()))),
        };
        self.notes.push(format!("DR group {name:?}: it is not made, for {problem}"));
    }

    /// True if a volume that is not there comes with a DR group from another site: an empty one would be in its way.
    pub(super) fn waits_for_copy(
        &mut self,
        site: &WantedSite,
        pool: &WantedPool,
        volume: &WantedVolume,
    ) -> bool {
        let Some(group) = site.dr_groups.iter().find(|group| group.brings(&pool.name, &volume.name)) else {
            return false;
        };
        self.notes.push(format!(
            "volume {}/{}: it is not made here, for it comes with the DR group {:?} from the other site",
            pool.name, volume.name, group.name
        ));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dr::mode::{DrMode, HOLD_MS},
        site::{known_dr_group::KnownPlace, wanted::SiteContext},
        view::VolumeView,
    };
    use array::{format::VolumeId, pool::VolumeSetting};
    use plan::site::Site;
    use std::collections::BTreeMap;
    use world::ByteCount;

    /// Of two sites, with one group of drives each.
    const FILE: &str = "
        [[site]]
        name = 'boston'
        [[site]]
        name = 'denver'
        [[group]]
        name = 'mail'
        site = 'boston'
        [[group]]
        name = 'copies'
        site = 'denver'
        [[volume]]
        name = 'disk'
        group = 'mail'
        gb = 1
        [[volume]]
        name = 'disk'
        group = 'copies'
        gb = 1
        [replication]
        kind = 'synchronous'
        [[replication.dr_group]]
        name = 'sg1'
        volumes = ['mail/disk']
        to = 'denver'
        to_group = 'copies'
    ";

    fn known(pool: &str, volumes: &[&str], groups: Vec<KnownDrGroup>) -> KnownSite {
        let volume = |name: &&str| VolumeView {
            name: (*name).to_owned(),
            volume: VolumeId([7; 16]),
            size: ByteCount::gib(1),
            branch: 0,
            setting: VolumeSetting::default(),
            snapshots: 0,
            group: None,
            left_by: None,
        };
        let dr_groups = Some(KnownDrGroups { groups, ..KnownDrGroups::default() });
        let pools = BTreeMap::from([(pool.to_owned(), Some(volumes.iter().map(volume).collect()))]);
        KnownSite { pools, dr_groups, ..KnownSite::default() }
    }

    fn sg1(pool: &str, peer: &str) -> KnownDrGroup {
        KnownDrGroup {
            name: "sg1".to_owned(),
            peer: peer.to_owned(),
            mode: DrMode::Sync { hold_ms: HOLD_MS, failsafe: false },
            places: vec![KnownPlace { pool: pool.to_owned(), volumes: vec!["disk".to_owned()] }],
            joint: None,
            witness: Vec::new(),
        }
    }

    fn plan(known: &KnownSite, text: &str, site: &str) -> Result<SiteChanges, String> {
        let context = SiteContext { folder: "/".into(), state: "/state".into(), site: Some(site.to_owned()) };
        let wanted =
            WantedSite::of(&Site::from_toml(text).unwrap(), &context).map_err(|error| error.to_string())?;
        SiteChanges::between(known, &wanted, &[]).map_err(|error| error.to_string())
    }

    fn lines(changes: &SiteChanges) -> Vec<String> {
        changes.shown().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_site_with_the_volumes_makes_the_group_and_the_other_one_makes_nothing() {
        let before = plan(&known("mail", &["disk"], Vec::new()), FILE, "boston").unwrap();
        assert_eq!(lines(&before), ["+ DR group sg1: mail/disk to denver, synchronous, hold 15 s"]);
        let new = plan(
            &KnownSite { dr_groups: Some(KnownDrGroups::default()), ..KnownSite::default() },
            FILE,
            "boston",
        );
        assert_eq!(lines(&new.unwrap()).last(), lines(&before).last(), "after its volume");
        let there = plan(&known("copies", &[], Vec::new()), FILE, "denver").unwrap();
        assert_eq!(lines(&there), Vec::<String>::new());
        assert!(
            there.notes[0].starts_with("volume copies/disk: it is not made here, for it comes"),
            "{there:?}"
        );
        // Once it is there, at either role.
        for (pool, site, peer) in [("mail", "boston", "denver"), ("copies", "denver", "boston")] {
            let after = plan(&known(pool, &["disk"], vec![sg1(pool, peer)]), FILE, site).unwrap();
            assert_eq!(after, SiteChanges::default(), "{site}");
        }
    }

    #[test]
    fn a_group_that_the_file_wants_otherwise_stays_and_the_difference_is_said() {
        let there = known("mail", &["disk", "old"], vec![sg1("mail", "denver")]);
        for (from, to, why) in [
            ("to_group", "witness = ['w']\nto_group", "has witness = []"),
            ("'denver'\n        to_group = 'copies'", "'boulder'", "has to = \"denver\""),
            ("['mail/disk']", "['mail/old']", "has volumes = [\"mail/disk\"]"),
        ] {
            let text = FILE.replacen(
                "name = 'disk'\n        group = 'mail'",
                "name = 'old'\ngb = 1\ngroup = 'mail'\n[[volume]]\nname = 'disk'\n        group = 'mail'",
                1,
            );
            let changes = plan(&there, &text.replacen(from, to, 1), "boston").unwrap();
            let [refusal] = &changes.fixed_dr_groups[..] else { panic!("{from}: {changes:?}") };
            assert!(
                refusal.problem().starts_with("DR group \"sg1\" ") && refusal.problem().contains(why),
                "{refusal}"
            );
            assert!(refusal.remedy().contains("'spindle dr remove sg1' at both sites"), "{refusal}");
            assert!(changes.is_empty());
        }
        // A setting that is as said is no difference; neither is a rename, which comes first.
        let same = FILE.replace("to_group", "hold_seconds = 15\nfailsafe = false\nto_group");
        assert_eq!(plan(&there, &same, "boston").unwrap().fixed_dr_groups, []);
        let renamed =
            FILE.replace("mail/disk", "mail/new").replacen("name = 'disk'", "name = 'new'\nwas = 'disk'", 1);
        let changes = plan(&there, &renamed, "boston").unwrap();
        assert_eq!((changes.fixed_dr_groups.len(), changes.steps.len()), (0, 1), "{changes:?}");
    }

    #[test]
    fn another_mode_is_a_step_of_the_site_whose_file_has_the_group() {
        let there = known("mail", &["disk"], vec![sg1("mail", "denver")]);
        for (from, to, step) in [
            ("'synchronous'", "'periodic'", "synchronous, hold 15 s → periodic, every 15 min, 4 states kept"),
            ("to_group", "hold_seconds = 20\nto_group", "synchronous, hold 15 s → synchronous, hold 20 s"),
            (
                "to_group",
                "failsafe = true\nto_group",
                "synchronous, hold 15 s → synchronous, hold 15 s, failsafe",
            ),
        ] {
            let mut changes = plan(&there, &FILE.replacen(from, to, 1), "boston").unwrap();
            assert_eq!(lines(&changes), [format!("~ DR group sg1: {step}")]);
            changes.leave_dr_groups();
            assert!(
                changes.is_empty() && changes.notes[0].contains("'spindle apply' changes it"),
                "{changes:?}"
            );
        }
        let copies = known("copies", &["disk"], vec![sg1("copies", "boston")]);
        let changes = plan(&copies, &FILE.replace("'synchronous'", "'periodic'"), "denver").unwrap();
        assert!(
            changes.is_empty() && changes.notes[0].contains("the file of boston changes it"),
            "{changes:?}"
        );
        // A group with a witness is in sync.
        let watched = KnownDrGroup { witness: vec!["w".to_owned()], ..sg1("mail", "denver") };
        let there = known("mail", &["disk"], vec![watched]);
        let changes = plan(&there, &FILE.replace("'synchronous'", "'periodic'"), "boston").unwrap();
        let [refusal] = &changes.fixed_dr_groups[..] else { panic!("{changes:?}") };
        assert!(
            refusal.problem().contains("has witness = [\"w\"], which is fixed for its life"),
            "{refusal}"
        );
        let longer = FILE.replacen("to_group", "hold_seconds = 20\nto_group", 1);
        assert_eq!(lines(&plan(&there, &longer, "boston").unwrap()).len(), 1);
    }

    #[test]
    fn a_set_that_no_site_follows_cannot_be_verified_at_the_replica() {
        let set = |volume: &str| {
            format!(
                "{FILE}\n[[volume]]\nname = 'loose'\ngroup = 'mail'\ngb = 1\n[[protect]]\nset = 'post'\nvolumes = \
                 ['{volume}']\nschedules = ['3x1h']\nverify = {{ level = 'pages', at = 'replica' }}\n"
            )
        };
        let there = known("mail", &["disk", "loose"], vec![sg1("mail", "denver")]);
        let refused = |text: &str| {
            let changes = plan(&there, text, "boston").unwrap();
            changes.fixed_dr_groups.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(refused(&set("mail/disk")), Vec::<String>::new());
        let loose = set("mail/loose");
        let [refusal] = &refused(&loose)[..] else { panic!("{:?}", refused(&loose)) };
        assert!(
            refusal.starts_with("protect \"post\": verify: at = \"replica\": its volumes lie in no DR group"),
            "{refusal}"
        );
        assert_eq!(refused(&loose.replace("at = 'replica'", "at = '22:00'")), Vec::<String>::new());
        // A group that the same file makes is enough, and so is a pool that is closed.
        let new = plan(&known("mail", &["disk", "loose"], Vec::new()), &set("mail/disk"), "boston").unwrap();
        assert_eq!(new.fixed_dr_groups, []);
        let closed = KnownSite { pools: BTreeMap::from([("mail".to_owned(), None)]), ..there.clone() };
        assert_eq!(plan(&closed, &loose, "boston").unwrap().fixed_dr_groups, []);
    }

    #[test]
    fn groups_that_are_only_planned_or_not_in_the_file_are_named() {
        let text = FILE.replace("to = 'denver'\n        to_group = 'copies'", "");
        let planned = plan(&known("mail", &["disk"], Vec::new()), &text, "boston").unwrap();
        assert_eq!(planned.notes, ["DR group \"sg1\": it is not made, for it says no to"]);
        let kindless =
            plan(&known("mail", &["disk"], Vec::new()), &FILE.replace("'synchronous'", "'logs'"), "boston");
        assert!(
            kindless.unwrap().notes[0].ends_with("neither it nor [replication] says a kind that storage has")
        );
        let other = KnownDrGroup { name: "other".to_owned(), ..sg1("mail", "denver") };
        let kept = plan(&known("mail", &["disk"], vec![other]), &text, "boston").unwrap().kept;
        assert_eq!(kept, ["DR group other, with denver: it stays; 'spindle dr remove other' takes it apart"]);
    }
}
