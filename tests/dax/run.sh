#!/usr/bin/env bash
# Runs the DAX medium's tests on an emulated NVDIMM with MAP_SYNC, without special hardware.
#
# Two boots of Debian's kernel under QEMU (software emulation, no privileges): the first makes a DAX
# file system and persists words through a direct mapping, then the machine is reset without a sync;
# the second looks for every word. Both persistence domains are tried. Takes some minutes.
#
# Needs: apt-get install qemu-system-x86 linux-image-amd64 ndctl e2fsprogs busybox-static cpio kmod
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernel=$(ls -1 /boot/vmlinuz-*-amd64 2>/dev/null | sort -V | tail -n 1)
for tool in qemu-system-x86_64 ndctl mkfs.ext4 busybox cpio insmod; do
    command -v "$tool" >/dev/null || { echo "dax: $tool is missing; see the head of $0" >&2; exit 2; }
done
[ -n "$kernel" ] || { echo "dax: no kernel in /boot; install linux-image-amd64" >&2; exit 2; }
version=${kernel#/boot/vmlinuz-}

echo "dax: building the tests"
cargo test -q -p everhash-pmem --test dax --no-run
binary=$(cargo test -p everhash-pmem --test dax --no-run --message-format=json 2>/dev/null |
    grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d'"' -f4)
[ -x "$binary" ] || { echo "dax: the tests were not built" >&2; exit 2; }

echo "dax: packing $version"
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,mnt,tmp,etc,lib/modules}
cp /bin/busybox "$root/bin/"
install_program() { # with the libraries that it needs, where the loader looks for them
    cp -L "$1" "$root/bin/$2"
    ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Lu "$library" "$root$library"
    done
}
install_program "$binary" dax-tests
install_program "$(command -v ndctl)" ndctl
install_program "$(command -v mkfs.ext4)" mkfs.ext4
cp -r /etc/ndctl* /etc/ndctl.conf.d "$root/etc/" 2>/dev/null || true
: > "$root/modules"
# From the list of dependencies and not by modprobe, which leaves out what this machine has loaded.
with_dependencies() { # the module first, what it needs behind it, the deepest last
    grep "/$1\.ko[^/:]*:" "/lib/modules/$version/modules.dep" | tr -d : | tr ' ' '\n' | tac
}
for module in nfit nd_pmem crc32c-intel ext4; do
    with_dependencies "$module"
done | awk 'NF && !seen[$0]++' | while read -r file; do
    cp "/lib/modules/$version/$file" "$root/lib/modules/"
    basename "$file" >> "$root/modules"
done

cat > "$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
while read -r module; do insmod "/lib/modules/$module" || echo "dax: $module was refused"; done < /modules
for argument in $(cat /proc/cmdline); do
    case $argument in dax.*) export "EVERHASH_${argument#dax.}";; esac
done
finish() { echo "DAX-RESULT $1"; echo 1 > /proc/sys/kernel/sysrq; echo b > /proc/sysrq-trigger; sleep 60; }
export EVERHASH_DAX_DIR=/mnt
if [ "$EVERHASH_PHASE" = before ]; then
    ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem || finish failed
    mkfs.ext4 -q -b 4096 /dev/pmem0 || finish failed
    test=before_the_reset_words_are_persisted_without_a_sync
else
    test=after_the_reset_every_persisted_word_is_there
fi
mount -t ext4 -o dax /dev/pmem0 /mnt || finish failed
echo "dax: region domain $(cat /sys/bus/nd/devices/region0/persistence_domain)"
dax-tests --ignored --exact "$test" --nocapture && finish passed
finish failed
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd"

# The kernel must not give up because the timer of a busy machine's emulator is late.
boot() { # phase, what the machine saves, what the kernel should say
    timeout 600 qemu-system-x86_64 -machine "q35,accel=tcg,nvdimm=on,nvdimm-persistence=$2" \
        -cpu max -m 1G,slots=2,maxmem=4G -nographic -no-reboot -nic none \
        -object "memory-backend-file,id=mem,share=on,mem-path=$work/nvdimm,size=537001984" \
        -device nvdimm,memdev=mem,id=nvdimm,label-size=131072 \
        -kernel "$kernel" -initrd "$work/initrd" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check dax.PHASE=$1 dax.DAX_DOMAIN=$3" \
        < /dev/null 2>&1 | tr -d '\r' | tee "$work/log" | grep -E '^(dax:|test |domain|DAX-RESULT)|panicked' || true
    grep -q '^DAX-RESULT passed' "$work/log" || { tail -n 40 "$work/log"; return 1; }
}

for pair in mem-ctrl:memory_controller cpu:cpu_cache; do
    saves=${pair%:*} domain=${pair#*:}
    echo "dax: a machine whose domain is $domain"
    # 512 MiB and the label area: other sizes are refused as misaligned.
    rm -f "$work/nvdimm"; truncate -s 537001984 "$work/nvdimm"
    for phase in before after; do
        boot "$phase" "$saves" "$domain" || { echo "dax: FAILED $phase the reset, $domain" >&2; exit 1; }
    done
done
echo "dax: 4 passed, 0 failed"
