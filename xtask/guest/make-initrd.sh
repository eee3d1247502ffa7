#!/bin/bash
# initrd.img in this folder, from the packages unpacked in ./rootfs and the file ./init. Nothing of this machine is in it.
set -euo pipefail
root=$PWD/rootfs
tree=$PWD/tree
version=$(ls "$root/lib/modules")
libraries=$root/lib/x86_64-linux-gnu:$root/usr/lib/x86_64-linux-gnu:$root/lib:$root/usr/lib/x86_64-linux-gnu/ceph
loader=$root/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
run() { "$loader" --library-path "$libraries" "$@"; }

rm -rf "$tree"
mkdir -p "$tree"/{bin,sbin,etc/iscsi,etc/multipath,proc,sys,dev,run,tmp,mnt,root,lib64,var/lib/iscsi,lib/udev/rules.d} \
    "$tree"/lib/{systemd,multipath,x86_64-linux-gnu}

# A program or a library with the libraries it needs.
put() {
    cp -L "$1" "$tree$2"
    run --list "$1" | grep -o '/[^ ]*' | while read -r library; do
        case $library in
            *ld-linux*) cp -nL "$library" "$tree/lib64/" ;;
            *) cp -nL "$library" "$tree/lib/x86_64-linux-gnu/" ;;
        esac
    done
}

# Where a package has put a program.
find_program() {
    for folder in sbin usr/sbin bin usr/bin lib/udev usr/lib/udev; do
        if [ -e "$root/$folder/$1" ]; then
            echo "$root/$folder/$1"
            return
        fi
    done
    echo "no package has $1" >&2
    return 1
}

busybox=$(find_program busybox)
cp "$busybox" "$tree/bin/busybox"
"$busybox" --list | grep -vx busybox | while read -r applet; do ln -s busybox "$tree/bin/$applet"; done

for name in iscsid iscsiadm multipath multipathd mkfs.xfs xfs_repair mkfs.ext4 e2fsck fio ip kmod dmsetup kpartx scsi_id udevadm sg_persist sg_vpd; do
    file=$(find_program $name)
    rm -f "$tree/bin/$name"
    put "$file" "/sbin/$name"
done
ln -s /sbin/scsi_id "$tree/lib/udev/scsi_id"
ln -s /sbin/udevadm "$tree/lib/systemd/systemd-udevd"
for name in modprobe lsmod; do rm -f "$tree/bin/$name"; ln -s kmod "$tree/sbin/$name"; done
# What plugins need, multipathd has brought.
cp -L "$root"/lib/multipath/*.so "$tree/lib/multipath/"
# Threads of multipathd end by it, without linking it.
cp -L "$root/lib/x86_64-linux-gnu/libgcc_s.so.1" "$tree/lib/x86_64-linux-gnu/"
for rule in 50-udev-default 55-dm 56-dm-mpath 60-block 60-multipath 60-persistent-storage 95-dm-notify; do
    cp "$root"/lib/udev/rules.d/$rule*.rules "$root"/usr/lib/udev/rules.d/$rule*.rules "$tree/lib/udev/rules.d/" \
        2> /dev/null || true
done

modules="virtio_pci virtio_net iscsi_tcp sd_mod sg dm_multipath dm_round_robin dm_service_time scsi_dh_alua xfs ext4 crc32c_generic"
echo "$modules" > "$tree/modules"
# kmod is what it is called.
kmod() { run --argv0 "$1" "$root/bin/kmod" "${@:2}"; }
kmod depmod -b "$root" "$version"
# The last one is loaded by a machine that iPXE has booted.
for module in $modules iscsi_ibft; do
    kmod modprobe -d "$root" -S "$version" --show-depends "$module" | awk '/^insmod/ { print $2 }'
done | sort -u | while read -r file; do
    path=lib/modules/${file#*lib/modules/}
    mkdir -p "$tree/$(dirname "$path")"
    cp "$file" "$tree/$path"
done
cp "$root/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$tree/lib/modules/$version/"
kmod depmod -b "$tree" "$version"

echo "root:x:0:0:root:/root:/bin/sh" > "$tree/etc/passwd"
echo "root:x:0:" > "$tree/etc/group"
echo "passwd: files" > "$tree/etc/nsswitch.conf"
install -m 755 init "$tree/init"
(cd "$tree" && find . | run "$root/bin/cpio" -o -H newc --quiet) > initrd.img
rm -rf "$tree"
