//! Pairing: two sites learn each other's certificate with a one-time token. Invariants:
//!
//! 1. A token pairs one certificate, before it expires. The same certificate may present it again until then: the
//!    answer may have been lost.
//! 2. A site that is paired never changes its certificate by a token; it has to be unpaired first.
//! 3. A source that presented a wrong token waits: twice as long after each one.
//!
//! Each side proves that it knows the token by an HMAC-SHA-256, keyed by a hash of the token, over its role, its
//! site, both certificates' fingerprints and a key exported from the TLS connection. A proof is worth nothing on
//! another connection, so a man in the middle, who has two of them, can neither pass it on nor use it later; and
//! from a proof he learns nothing about a token of 128 random bits.

use super::refusal;
use crate::frame::{PairingFrame, RefusalCode, RefusalFrame};
use array::format::SiteId;
use ring::{digest, hmac};
use std::{cell::RefCell, collections::BTreeMap, fmt, rc::Rc, time::Duration};
use tls::CertificateFingerprint;
use world::{Moment, World};

/// Tokens that wait to be presented at most.
const TOKENS_MAX: usize = 64;
/// Sources of which failures are remembered at most.
const SOURCES_MAX: usize = 1024;
/// First and longest pause after a wrong token.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// A one-time secret of 128 bits: 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingToken([u8; 16]);

impl PairingToken {
    fn draw(world: &World) -> Self {
        let mut bytes = [0; 16];
        world.fill_secret(&mut bytes);
        Self(bytes)
    }

    /// Reads the digits; spaces around them do not count.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(Self(number.to_be_bytes()))
    }

    /// The digits, to be shown once.
    pub fn digits(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    pub(super) fn key(&self) -> PairingKey {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"spindle pairing token 1");
        context.update(&self.0);
        PairingKey(context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Debug for PairingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingToken")
    }
}

/// The hash of a token: what proofs are keyed by, and all that the side that made the token keeps of it.
#[derive(Clone, Copy)]
pub(super) struct PairingKey([u8; 32]);

/// The side of a connection that a proof is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PairingRole {
    Presenter,
    Maker,
}

/// The connection over which two sites are paired.
#[derive(Clone, Copy)]
pub(super) struct PairingChannel {
    pub binding: [u8; 32],
    pub presenter: CertificateFingerprint,
    pub maker: CertificateFingerprint,
}

impl PairingKey {
    fn message(role: PairingRole, site: SiteId, channel: &PairingChannel) -> Vec<u8> {
        let role: &[u8] = match role {
            PairingRole::Presenter => b"spindle pairing 1 presenter",
            PairingRole::Maker => b"spindle pairing 1 maker    ",
        };
        [role, &site.0, &channel.binding, &channel.presenter.0, &channel.maker.0].concat()
    }

    pub fn prove(&self, role: PairingRole, site: SiteId, channel: &PairingChannel) -> PairingFrame {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let tag = hmac::sign(&key, &Self::message(role, site, channel));
        PairingFrame { site, proof: tag.as_ref().try_into().expect("an HMAC-SHA-256 has 32 bytes") }
    }

    /// In constant time.
    pub fn verify(&self, role: PairingRole, said: &PairingFrame, channel: &PairingChannel) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        hmac::verify(&key, &Self::message(role, said.site, channel), &said.proof).is_ok()
    }
}

/// The sites that this one is paired with. Clones share them; the owner stores them.
#[derive(Clone, Debug, Default)]
pub struct PairedSites(Rc<RefCell<BTreeMap<SiteId, CertificateFingerprint>>>);

impl PairedSites {
    /// False if the site is known with another certificate: then nothing changes.
    pub fn insert(&self, site: SiteId, certificate: CertificateFingerprint) -> bool {
        *self.0.borrow_mut().entry(site).or_insert(certificate) == certificate
    }

    /// Connections that are open go on.
    pub fn remove(&self, site: SiteId) {
        self.0.borrow_mut().remove(&site);
    }

    pub fn certificate_of(&self, site: SiteId) -> Option<CertificateFingerprint> {
        self.0.borrow().get(&site).copied()
    }

    pub fn all(&self) -> Vec<(SiteId, CertificateFingerprint)> {
        self.0.borrow().iter().map(|(site, certificate)| (*site, *certificate)).collect()
    }
}

/// A token that was made here.
struct OfferedToken {
    key: PairingKey,
    expires_at: Moment,
    used_by: Option<(SiteId, CertificateFingerprint)>,
}

/// Failures of a source.
struct SourceFailures {
    pause: Duration,
    allowed_at: Moment,
}

/// The tokens that were made here. They are in memory: a restart forgets them.
#[derive(Default)]
pub(super) struct TokenBook {
    offered: Vec<OfferedToken>,
    failures: BTreeMap<String, SourceFailures>,
}

impl TokenBook {
    /// Makes a token. `None` if as many wait as are allowed.
    pub fn offer(&mut self, world: &World, valid: Duration) -> Option<PairingToken> {
        let now = world.now();
        self.offered.retain(|offered| now < offered.expires_at);
        if self.offered.len() >= TOKENS_MAX {
            return None;
        }
        let token = PairingToken::draw(world);
        self.offered.push(OfferedToken { key: token.key(), expires_at: now + valid, used_by: None });
        Some(token)
    }

    /// Checks what a site presents from an address, and gives the key to answer with.
    pub fn check(
        &mut self,
        source: &str,
        said: &PairingFrame,
        channel: &PairingChannel,
        now: Moment,
    ) -> Result<PairingKey, RefusalFrame> {
        // Ports change with each connection.
        let host = source.rsplit_once(':').map_or(source, |(host, _)| host);
        if let Some(failed) = self.failures.get(host)
            && now < failed.allowed_at
        {
            let seconds = failed.allowed_at.since(now).as_secs() + 1;
            let text = format!("too many wrong tokens from this address: try again in {seconds} s");
            return Err(refusal(RefusalCode::Busy, text));
        }
        let presenter = (said.site, channel.presenter);
        let found = self.offered.iter_mut().find(|offered| {
            now < offered.expires_at
                && offered.used_by.is_none_or(|user| user == presenter)
                && offered.key.verify(PairingRole::Presenter, said, channel)
        });
        match found {
            Some(offered) => {
                offered.used_by = Some(presenter);
                self.failures.remove(host);
                Ok(offered.key)
            }
            None => {
                self.failed(host, now);
                Err(refusal(RefusalCode::Token, "the pairing token is wrong, used or expired"))
            }
        }
    }

    fn failed(&mut self, host: &str, now: Moment) {
        if self.failures.len() >= SOURCES_MAX && !self.failures.contains_key(host) {
            let oldest = self.failures.iter().min_by_key(|(_, failed)| failed.allowed_at);
            let oldest = oldest.expect("there are many").0.clone();
            self.failures.remove(&oldest);
        }
        let (first, longest) = PAUSE;
        let failed = self.failures.get(host);
        let pause = failed.map_or(first, |failed| (failed.pause * 2).min(longest));
        self.failures.insert(host.to_owned(), SourceFailures { pause, allowed_at: now + pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_and_print() {
        let token = PairingToken([0x0f; 16]);
        assert_eq!(token.digits(), "0f".repeat(16));
        assert_eq!(PairingToken::parse(&format!(" {}\n", token.digits())), Some(token));
        for wrong in ["", "0f", &"0".repeat(33), &"g".repeat(32), &format!("+{}", "0".repeat(31))] {
            assert_eq!(PairingToken::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_proof_holds_for_one_role_site_and_connection() {
        let key = PairingToken([1; 16]).key();
        let certificate = |byte| CertificateFingerprint([byte; 32]);
        let channel = PairingChannel { binding: [3; 32], presenter: certificate(1), maker: certificate(2) };
        let said = key.prove(PairingRole::Presenter, SiteId([5; 16]), &channel);
        let holds = |key: PairingKey, role, said: &PairingFrame, channel| key.verify(role, said, &channel);
        assert!(holds(key, PairingRole::Presenter, &said, channel));
        assert!(!holds(key, PairingRole::Maker, &said, channel));
        assert!(!holds(PairingToken([2; 16]).key(), PairingRole::Presenter, &said, channel));
        let of_other_site = PairingFrame { site: SiteId([6; 16]), ..said };
        assert!(!holds(key, PairingRole::Presenter, &of_other_site, channel));
        for other in [
            PairingChannel { binding: [4; 32], ..channel },
            PairingChannel { presenter: certificate(9), ..channel },
            PairingChannel { maker: certificate(9), ..channel },
        ] {
            assert!(!holds(key, PairingRole::Presenter, &said, other));
        }
    }
}
