//! Commands of the mail host, from its iSCSI initiator to mounted filesystems.

use super::site_text::SetupSite;
use serving::export::name_of;
use world::Address;

/// Commands for a root shell of a Linux host with open-iscsi, a line each. They hold the secret.
pub fn host_commands(site: &SetupSite, secret: &str) -> Vec<String> {
    let portal = match &site.address {
        Address::Tcp { host, port } if site.address.is_any() => {
            format!(
                "portal=ADDRESS:{port}    # for {host}: the address of this machine at which the host reaches it"
            )
        }
        address => format!("portal={address}"),
    };
    let targets: Vec<String> = site.division.pools.iter().map(|pool| name_of(pool.name)).collect();
    let mut lines = vec![
        format!("grep -x InitiatorName={} /etc/iscsi/initiatorname.iscsi    # else write it there, and: systemctl restart iscsid", site.host.iqn),
        portal,
        format!("user={} secret={secret}", site.host.name),
        "pairs=\"authmethod=CHAP username=$user password=$secret\"".to_owned(),
        "iscsiadm -m discoverydb -t st -p $portal -o new".to_owned(),
        "for pair in $pairs; do".to_owned(),
        "  iscsiadm -m discoverydb -t st -p $portal -o update -n discovery.sendtargets.auth.${pair%%=*} -v ${pair#*=}"
            .to_owned(),
        "done".to_owned(),
        "iscsiadm -m discoverydb -t st -p $portal --discover".to_owned(),
        format!("for target in {}; do", targets.join(" ")),
        "  for pair in $pairs; do".to_owned(),
        "    iscsiadm -m node -T $target -p $portal -o update -n node.session.auth.${pair%%=*} -v ${pair#*=}".to_owned(),
        "  done".to_owned(),
        "  iscsiadm -m node -T $target -p $portal -o update -n node.startup -v automatic".to_owned(),
        "  iscsiadm -m node -T $target -p $portal -l".to_owned(),
        "done".to_owned(),
        "sleep 2; udevadm settle".to_owned(),
        "mount_unit() {    # target, unit, folder".to_owned(),
        "  disk=$(find -L /dev/disk/by-id -name 'wwn-*' -samefile /dev/disk/by-path/ip-$portal-iscsi-$1-lun-$2)".to_owned(),
        "  mkfs.ext4 $disk && mkdir -p $3 && echo \"$disk $3 ext4 _netdev,nofail 0 2\" >> /etc/fstab && mount $3"
            .to_owned(),
        "}".to_owned(),
    ];
    for (pool, target) in site.division.pools.iter().zip(&targets) {
        for (number, volume) in pool.volumes.iter().enumerate() {
            lines.push(format!("mount_unit {target} {number} /srv/mail/{}", volume.name));
        }
    }
    lines
}
