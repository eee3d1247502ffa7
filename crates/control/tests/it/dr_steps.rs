//! Wishes of people about DR groups, and accidents meanwhile.

use crate::{
    dr_scene::{DrScene, VerbOutcome},
    dr_site::{SITES, VOLUME_BYTES, VOLUMES},
};
use control::{
    dr::{group_view::DrRole, mode::DrMode},
    web::{
        client::{FailoverBody, Method, NewDrGroupBody},
        rows::VolumePage,
    },
};
use nbd::Client;
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, IoResult, Stability};

impl DrScene {
    /// Something happens while a change is under way.
    async fn disturb(&self) {
        self.pause().await;
        match self.below(6) {
            0 => self.cut(),
            site @ (1 | 2) => {
                let site = site as usize - 1;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
            3 => {
                self.crash(0);
                self.crash(1);
                self.pause().await;
                self.start(0);
                self.start(1);
            }
            _ => {}
        }
    }

    /// Something happens once hosts are gone: about when the old primary gives its right away, and the new one gets it.
    async fn disturb_taking_over(&self, old: usize) {
        self.hosts.looks_closely.set(true);
        for _ in 0..1_000 {
            if self.hosts.works_at.get() != Some(old) {
                break;
            }
            self.world.sleep(Duration::from_micros(200)).await;
        }
        self.hosts.looks_closely.set(false);
        // The server looks after 5 ms whether they are gone, and both records take less than 1 ms then.
        self.world.sleep(Duration::from_micros(4_800 + self.below(1_200))).await;
        match self.below(3) {
            0 => {
                self.cut();
                self.network.reset(SITES[0], SITES[1]);
            }
            site => {
                let site = site as usize - 1;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
        }
    }

    /// Makes the group, however often it is interrupted.
    pub async fn create(self: &Rc<Self>) {
        self.create_amid(60.0).await;
    }

    /// Makes the group, and nothing interrupts that.
    pub async fn create_calmly(self: &Rc<Self>) {
        self.create_amid(0.0).await;
    }

    async fn create_amid(self: &Rc<Self>, disturbed_percent: f64) {
        let reply = self.sites[0].ask(&self.world, (Method::GET, "/v1/volumes"), None, None).await.unwrap();
        let page: VolumePage = reply.parsed().unwrap();
        let volumes = page.volumes.into_iter().map(|row| row.id).collect();
        let body = NewDrGroupBody {
            name: "sg1".to_owned(),
            volumes,
            peer: SITES[1].to_owned(),
            pool: None,
            pools: Default::default(),
            mode: self.mode.clone(),
            witness: Vec::new(),
        };
        let body = serde_json::to_string(&body).unwrap();
        for attempt in 0.. {
            self.say("the group is made");
            let own = Rc::clone(self);
            let disturbing = self.world.spawn("disturbance", async move {
                if attempt < 4 && own.percent(disturbed_percent) {
                    own.disturb().await;
                }
            });
            let asked = self.sites[0].ask(
                &self.world,
                (Method::POST, "/v1/dr/groups"),
                Some(body.clone()),
                Some("make"),
            );
            let outcome = self.outcome(asked.await);
            disturbing.await;
            if let VerbOutcome::Done(row) = outcome {
                assert_eq!(row.role, DrRole::Primary, "{row:?}");
                *self.group.borrow_mut() = row.group;
                break;
            }
            assert!(attempt < 60, "the group cannot be made\n{}", self.describe().await);
            self.restore();
            self.until_up(0).await;
            self.until_up(1).await;
            self.sleep_ms(500).await;
        }
        if self.rows_travel {
            // The other site's file has none of the rows, ever.
            return;
        }
        self.sites[1].names_volumes.set(true);
        loop {
            self.until_up(1).await;
            if self.sites[1].apply(&self.world, &[]).await.is_ok_and(|reply| reply.status < 300) {
                return;
            }
            self.sleep_ms(200).await;
        }
    }

    /// A planned failover, asked for at either side.
    pub async fn move_group(self: &Rc<Self>) {
        if self.percent(80.0) {
            self.restore();
            for _ in 0..30 {
                if self.are_alike().await {
                    break;
                }
                self.sleep_ms(100).await;
            }
        }
        let before = self.primary().await;
        let asked_at = self.below(2) as usize;
        self.say(format!("planned failover asked at {}, primary {before:?}", SITES[asked_at]));
        let expected = self.hosts.expected.take();
        let is_disturbed = self.percent(50.0);
        let own = Rc::clone(self);
        let disturbing = self.world.spawn("disturbance", async move {
            match before {
                Some(before) if is_disturbed && own.percent(60.0) => own.disturb_taking_over(before).await,
                _ if is_disturbed => own.disturb().await,
                _ => {}
            }
        });
        let outcome = self.failover(asked_at, FailoverBody::default()).await;
        match &outcome {
            VerbOutcome::Done(_) => {
                let new = before.map(|before| 1 - before);
                self.count(|counts| counts.moved += 1);
                // Nothing else can have changed it.
                self.hosts.expected.set(new);
            }
            VerbOutcome::Refused(_) if !is_disturbed => {
                self.hosts.expected.set(expected);
                assert_eq!(self.primary().await, before, "{outcome:?}\n{}", self.describe().await);
            }
            _ => {}
        }
        disturbing.await;
        if let VerbOutcome::Done(_) = outcome
            && let Some(before) = before
        {
            for site in 0..2 {
                self.start(site);
                self.until_up(site).await;
            }
            let now = self.primary().await;
            assert_eq!(now, Some(1 - before), "it was moved\n{}", self.describe().await);
        }
    }

    /// The primary is lost, and the other side takes over.
    async fn take_over(self: &Rc<Self>) {
        let Some(old) = self.primary().await else { return };
        let new = 1 - old;
        if !self.have_one_history.get() {
            return;
        }
        let Some(row) = self.row(new).await else { return };
        self.crash(old);
        let kept = self.sites[old].kept().await;
        // The record may have changed meanwhile: a hand over that was under way.
        let Some(was_alone) = kept.is_alone() else { return self.start(old) };
        let is_async = matches!(self.mode, DrMode::Async { .. });
        let loses = is_async || was_alone;
        self.say(format!("{} is to take over, loses {loses}, {}", SITES[new], row.state));
        self.pause().await;
        self.hosts.expected.set(None);
        let is_disturbed = self.percent(20.0);
        let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
        let before = self.hosts.may_lose.get();
        self.hosts.may_lose.set(before || loses);
        for attempt in 0.. {
            let (own, crashes) = (Rc::clone(self), is_disturbed && attempt == 0);
            let disturbing = self.world.spawn("disturbance", async move {
                if crashes {
                    own.pause().await;
                    own.crash(new);
                    own.pause().await;
                    own.start(new);
                }
            });
            let outcome = self.failover(new, body.clone()).await;
            disturbing.await;
            self.start(new);
            self.until_up(new).await;
            let is_primary = self.sites[new].is_primary(&self.world).await;
            match outcome {
                VerbOutcome::Done(_) => {
                    assert!(is_primary, "it took over\n{}", self.describe().await);
                    self.count(|counts| counts.taken_over += 1);
                    self.hosts.expected.set(Some(new));
                    self.have_one_history.set(false);
                    break;
                }
                VerbOutcome::Refused(why) if why.contains("first copy") => {
                    assert!(!is_primary && loses, "{why}");
                    self.hosts.may_lose.set(before);
                    break;
                }
                // It was done before the crash, and says that it serves; or it returned, and is asked again.
                VerbOutcome::Refused(why) if why.contains("and serves") => {
                    self.have_one_history.set(false);
                    break;
                }
                _ => {}
            }
            assert!(attempt < 60, "nobody takes over\n{}", self.describe().await);
            self.sleep_ms(500).await;
        }
        self.pause().await;
        self.start(old);
    }

    /// The primary is lost while the parts of the group are brought together again: one of them has what the other one lacks.
    async fn take_over_merging(self: &Rc<Self>) {
        let Some(old) = self.primary().await else { return };
        self.cut();
        // Hosts are answered without the other side meanwhile.
        self.sleep_ms(800 + self.below(1_500)).await;
        self.restore();
        for _ in 0..4_000 {
            if self.row(1 - old).await.is_some_and(|row| row.connected_since.is_some()) {
                break;
            }
            self.sleep_ms(1).await;
        }
        self.world.sleep(Duration::from_micros(self.below(30_000))).await;
        self.take_over().await;
    }

    /// The primary returns while the other side is not reached: it serves nothing until it compares, or a person says so.
    async fn return_alone(&self) {
        let Some(primary) = self.primary().await else { return };
        self.cut();
        self.crash(primary);
        self.pause().await;
        self.start(primary);
        let before = self.hosts.answers[primary].get();
        self.until_up(primary).await;
        self.sleep_ms(2_000 + self.below(6_000)).await;
        let answers = self.hosts.answers[primary].get() - before;
        assert_eq!(answers, 0, "{} serves before it compared", SITES[primary]);
        if self.percent(50.0) {
            let body = FailoverBody { unplanned: true, accept_any_loss: true, ..Default::default() };
            self.say(format!("{} is to serve alone", SITES[primary]));
            self.hosts.expected.set(None);
            let outcome = self.failover(primary, body).await;
            assert!(matches!(outcome, VerbOutcome::Done(_)), "{outcome:?}\n{}", self.describe().await);
            self.hosts.expected.set(Some(primary));
            self.have_one_history.set(false);
            self.sleep_ms(1_000).await;
        }
        if self.percent(70.0) {
            self.restore();
        }
    }

    /// Changes that are refused whenever they come, or that change nothing.
    async fn ask_for_nothing(&self) {
        let site = self.below(2) as usize;
        let Some(before) = self.row(site).await else { return };
        if before.role == DrRole::Secondary && self.percent(50.0) {
            self.say(format!("{} gives way, although it is secondary", SITES[site]));
            let path = format!("/v1/dr/groups/{}/give-way", before.group);
            let asked = self.sites[site].ask(&self.world, (Method::POST, &path), None, None).await;
            let outcome = self.outcome(asked);
            assert!(matches!(outcome, VerbOutcome::Done(_)), "{outcome:?}");
        } else if before.connected_since.is_some() {
            self.say(format!("{} is asked to take over although it is connected", SITES[site]));
            let body = FailoverBody { unplanned: true, accept_loss_s: Some(0.0), ..Default::default() };
            let outcome = self.failover(site, body).await;
            // The line may have gone since: a primary that serves is primary already.
            let is_as_before = match &outcome {
                VerbOutcome::Done(row) => row.connected_since.is_none() && before.role == DrRole::Primary,
                _ => true,
            };
            assert!(is_as_before, "{outcome:?}");
        }
        if let Some(after) = self.row(site).await {
            assert_eq!(after.role, before.role, "{}", self.describe().await);
        }
    }

    pub async fn step(self: &Rc<Self>) {
        self.pause().await;
        match self.below(16) {
            0 | 1 => self.cut(),
            2..5 => self.restore(),
            5 | 6 => {
                let site = self.below(2) as usize;
                self.crash(site);
                self.pause().await;
                self.start(site);
            }
            7 => self.return_alone().await,
            8..11 => self.move_group().await,
            11 if self.sites[0].has_several_pools() => self.take_over_merging().await,
            11 | 12 => self.take_over().await,
            13 => self.ask_for_nothing().await,
            14 => self.sleep_ms(8_000).await,
            _ => self.person().await,
        }
        for site in 0..2 {
            self.start(site);
            self.until_up(site).await;
        }
    }

    /// Takes the group apart at both sites, however often that is interrupted.
    pub async fn remove(self: &Rc<Self>) {
        let Some(primary) = self.primary().await else { return };
        self.hosts.only.set(Some(primary));
        let group = self.group.borrow().clone();
        let first = self.below(2) as usize;
        for site in [first, 1 - first] {
            for attempt in 0.. {
                self.say(format!("the group is removed at {}", SITES[site]));
                let (own, crashes) = (Rc::clone(self), attempt < 2 && self.percent(50.0));
                let disturbing = self.world.spawn("disturbance", async move {
                    if crashes {
                        own.pause().await;
                        own.crash(site);
                        own.pause().await;
                        own.start(site);
                    }
                });
                let path = format!("/v1/dr/groups/{group}");
                let key = format!("remove at {site}");
                let asked =
                    self.sites[site].ask(&self.world, (Method::DELETE, &path), None, Some(&key)).await;
                self.say(format!("    {asked:?}"));
                let is_done = asked.is_ok_and(|reply| reply.status < 300);
                disturbing.await;
                self.until_up(site).await;
                if is_done {
                    break;
                }
                if self.row(site).await.is_none() {
                    // A key that was not answered says nothing.
                    break;
                }
                assert!(attempt < 20, "it is not removed\n{}", self.describe().await);
            }
            assert!(self.row(site).await.is_none(), "it was removed\n{}", self.describe().await);
        }
        for (site, name) in SITES.into_iter().enumerate() {
            if self.percent(50.0) {
                self.crash(site);
                self.start(site);
                self.until_up(site).await;
            }
            assert!(self.row(site).await.is_none(), "it was removed\n{}", self.describe().await);
            self.sleep_ms(100).await;
            for volume in VOLUMES {
                let client = self.sites[site].connect(&self.world, volume).await;
                let written = match client {
                    Ok(client) => write_last_block(&client).await,
                    Err(error) => Err(error),
                };
                // Both are volumes of hosts again.
                written.unwrap_or_else(|error| panic!("{volume} of {name}: {error}"));
            }
        }
    }
}

/// Writes a block that no host of the ledger has.
async fn write_last_block(client: &Client) -> IoResult<()> {
    let at = ByteOffset(VOLUME_BYTES - 4096);
    client.write(at, vec![Arc::new(Buffer::zeroed(4096))], Stability::Stable).await
}
