//! Certificate authorities and certificates, generated for each test. Ed25519 signatures have a constant
//! length, so that a seed's run does not depend on the keys.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd,
};
use tls::{ClientTls, ServerTls, TlsIdentity};

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub struct Signed {
    certificate: String,
    key: String,
}

impl Signed {
    pub fn identity(&self) -> TlsIdentity<'_> {
        TlsIdentity { certificate: self.certificate.as_bytes(), key: self.key.as_bytes() }
    }
}

impl Authority {
    pub fn new() -> Self {
        Self::called("authority")
    }

    pub fn called(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for `name`, valid until the end of `year`.
    pub fn sign_until(&self, name: &str, year: i32) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(year, 12, 31);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }

    pub fn sign(&self, name: &str) -> Signed {
        self.sign_until(name, 3000)
    }

    /// A server with a certificate for `name`, open to all clients.
    pub fn server(&self, name: &str) -> ServerTls {
        ServerTls::new(self.sign(name).identity(), None).unwrap()
    }

    /// A server called `server` that demands a certificate of this authority.
    pub fn closed_server(&self) -> ServerTls {
        ServerTls::new(self.sign("server").identity(), Some(self.pem.as_bytes())).unwrap()
    }

    /// A client that trusts this authority for `server`.
    pub fn client(&self, identity: Option<&Signed>) -> ClientTls {
        ClientTls::new("server", self.pem.as_bytes(), identity.map(Signed::identity)).unwrap()
    }
}
