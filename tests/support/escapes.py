"""Attempts to leave the sandbox: shell scripts and Python programs that change, read or reach what they must not.

`$OUT` is a folder outside the workspace with the file `f`, `$VICTIM` a process, `$TCP`, `$UDP`, `$SOCKET` and
`$ABSTRACT` listeners of this machine. Secrets and names of secrets contain SECRET. An attempt that shows no such effect
prints ESCAPED if it succeeds.
"""

import os

SECRET = "SECRET-3141"

_SECRET_NAMES = (
    ".ssh/id .aws/credentials .gnupg/key .netrc .config/gh/hosts.yml .config/gcloud/token .docker/config.json "
    ".kube/config .git-credentials .npmrc .pypirc .pgpass .bash_history .mozilla/cookies .ecoshell-home/sessions "
    ".local/share/keyrings/login .config/google-chrome/Cookies .cargo/credentials.toml .cache/huggingface/token"
)
SECRET_PATHS = tuple(_SECRET_NAMES.split())
"""Secrets of the home folder."""
_READS = {name: f"cat ~/{name}" for name in SECRET_PATHS}

_WRITES = {
    "create": "echo x > $OUT/new",
    "append": "echo x >> $OUT/f",
    "delete": "rm -f $OUT/f",
    "rename": "mv $OUT/f $OUT/g",
    "change mode": "chmod 777 $OUT/f",
    "change time": "touch -d 2001-01-01 $OUT/f",
    "create a link": "ln -s /etc/passwd $OUT/link",
    "write through a hard link": "ln $OUT/f hard && echo x > hard",
    "create a folder": "mkdir $OUT/new",
    "delete a folder": "rmdir $OUT/empty",
    "create a pipe": "mkfifo $OUT/pipe",
    "truncate": "truncate -s 0 $OUT/f",
    "copy": "cp /bin/true $OUT/program",
    "dd": "echo x | dd of=$OUT/f",
    "edit in place": "sed -i s/old/new/ $OUT/f",
    "write through a link": "ln -s $OUT out; echo x > out/new",
    "write through a chain of links": "ln -s $OUT a; ln -s a b; ln -s b/f c; echo x > c",
    "swap a folder for a link": "mkdir s; echo x > s/f; rm -r s; ln -s $OUT s; echo x > s/f",
    "relative path": "echo x > ../documents/new",
    "relative path after cd": "mkdir -p d/e; cd d/e && echo x > ../../../documents/new",
    "move a file out": "echo x > mine; mv mine $OUT/mine",
    "unpack an archive": "echo x > t; tar cf t.tar t; tar xf t.tar -C $OUT",
    "path of the own root": "echo x > /proc/self/root$OUT/new",
    "path of the own folder": "echo x > /proc/self/cwd/../documents/new",
    "reopen a descriptor": "exec 3<$OUT/f; echo x > /proc/self/fd/3",
    "shell startup file": "echo x >> ~/.bashrc",
    "new startup file": "echo x > ~/.profile",
    "autostart": "mkdir -p ~/.config/autostart; echo x > ~/.config/autostart/x.desktop",
    "authorized keys": "mkdir -p ~/.ssh; echo x > ~/.ssh/authorized_keys",
    "new secret folder": "mkdir ~/.azure && echo x > ~/.azure/x",
    "beside the home folder": "echo x > $OUT/../../new",
    "shared memory": "echo x > /dev/shm/ecoshell-escape-$VICTIM",
    "temporary folder of others": "echo x > /tmp/ecoshell-escape-$VICTIM",
    "nested user namespace": "unshare -Urm sh -c 'mount -o remount,bind,rw / ; echo x > $OUT/new'",
}
_OTHER_READS = {
    "link to a secret": "ln -s ~/.ssh s; cat s/id",
    "link to the parent of a secret": "ln -s ~ h; cat h/.ssh/id",
    "hard link to a secret": "ln ~/.ssh/id key; cat key",
    "copy of a secret": "cp -r ~/.ssh copy; cat copy/id",
    "names of secrets": "ls ~/.ssh",
    "archive of the home folder": "tar cf - -C ~ . 2>/dev/null | grep -a SECRET",
    "search of the home folder": "grep -r SECRET ~ 2>/dev/null",
    "search by name": "find ~ -name '*SECRET*' -path '*/.ssh/*' 2>/dev/null",
    "mode of a secret": "chmod 755 ~/.ssh; cat ~/.ssh/id",
    "rename of a secret": "mv ~/.ssh ~/ssh; cat ~/ssh/id",
    "mount over a secret": "umount -l ~/.ssh; cat ~/.ssh/id",
    "mount over a secret in a namespace": "unshare -Urm sh -c 'umount -l ~/.ssh; cat ~/.ssh/id'",
    "environment of a process": "tr '\\0' '\\n' < /proc/$VICTIM/environ",
    "environments of all processes": "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a ^VICTIM_KEY",
    "command line of a process": "tr '\\0' ' ' < /proc/$VICTIM/cmdline",
    "list of processes": "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -ao 'SECRET.3141' | grep -v grep",
    "root of a process": "cat /proc/$VICTIM/root$HOME/.ssh/id",
    "folder of a process": "cat /proc/$VICTIM/cwd/id",
    "descriptor of a process": "cat /proc/$VICTIM/fd/0",
    "memory file of others": "cat /dev/shm/ecoshell-secret-$VICTIM",
    "temporary file of others": "cat /tmp/ecoshell-secret-$VICTIM",
}
_PROCESSES = {
    "kill": "kill -9 $VICTIM",
    "terminate": "kill $VICTIM",
    "stop": "kill -STOP $VICTIM",
}
_REPOSITORY = {
    "hook": "echo x > .git/hooks/pre-commit",
    "settings of git": "echo x >> .git/config",
    "git config": "git config core.fsmonitor ./evil",
    "replace the settings of git": "echo x > new; mv -f new .git/config",
    "delete the hooks": "rm -rf .git/hooks; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
    "link instead of the hooks": "rmdir .git/hooks; ln -s ../evil .git/hooks",
    "rename the repository": "mv .git old; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "delete the repository": "rm -rf .git; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit",
    "redirect git": "mkdir evil; echo ../evil > .git/commondir",
    "settings of ecoshell": "mkdir -p .ecoshell; echo x > .ecoshell/hooks.toml",
    "link instead of the settings": "mkdir evil; ln -s evil .ecoshell",
    "folder instead of the settings": "mkdir evil; echo x > evil/x; mv -T evil .ecoshell",
    "direnv": "echo x > .envrc",
    "editor": "echo x > .vscode/tasks.json",
    "hooks in a submodule": "echo x > .git/modules/sub/hooks/post-checkout",
}
CONTROLLED = {
    **_WRITES,
    **{f"read {name}": text for name, text in _READS.items()},
    **_OTHER_READS,
    **_PROCESSES,
}
CONTROLLED |= _REPOSITORY
"""Attempts that succeed without the sandbox, for root at least."""

_SYSTEM = {
    "remount": "mount -o remount,rw / && echo ESCAPED",
    "mount": "mount -t tmpfs none /mnt && echo ESCAPED",
    "write /etc": "touch /etc/ecoshell-escape && echo ESCAPED; rm -f /etc/ecoshell-escape",
    "write /usr": "touch /usr/local/bin/ecoshell-escape && echo ESCAPED; rm -f /usr/local/bin/ecoshell-escape",
    "write /var": "touch /var/ecoshell-escape && echo ESCAPED; rm -f /var/ecoshell-escape",
    "password hashes": "head -c 1 /etc/shadow > /dev/null && echo ESCAPED",
    "disk": "for disk in /dev/vda /dev/sda /dev/nvme0n1; do head -c 1 $disk >/dev/null 2>&1 && echo ESCAPED; done",
    "kernel log": "head -c 1 /dev/kmsg >/dev/null && echo ESCAPED",
    "memory device": "head -c 1 /dev/mem >/dev/null && echo ESCAPED",
    "virtual machines": "test -e /dev/kvm && echo ESCAPED",
    "make a device": "mknod disk b 254 0 && head -c 1 disk && echo ESCAPED",
    "kernel setting": "echo x > /proc/sys/kernel/domainname && echo ESCAPED",
    "system request": "test -w /proc/sysrq-trigger && echo h > /proc/sysrq-trigger && echo ESCAPED",
    "control group": "mkdir /sys/fs/cgroup/ecoshell-escape && echo ESCAPED; rmdir /sys/fs/cgroup/ecoshell-escape",
    "capabilities": "grep -q 'CapEff:.0000000000000000' /proc/self/status || echo ESCAPED",
    "new privileges": "grep -q 'NoNewPrivs:.1' /proc/self/status || echo ESCAPED",
    "sudo": "sudo -n true 2>/dev/null && echo ESCAPED",
    "setuid program": "cp /bin/sh sh2; chmod 6755 sh2; ./sh2 -c 'cat ~/.ssh/id'",
    "path of the first process": "echo x > /proc/1/root$OUT/new",
    "second mount of the disk": "mkdir m; unshare -Urm sh -c 'mount --bind / m; cat m$HOME/.ssh/id'",
    "environment of the parent": "tr '\\0' '\\n' < /proc/$PPID/environ | grep SECRET",
    "memory setting": "cd /proc/sys/vm; n=$(cat swappiness); echo $n > swappiness && echo ESCAPED",
    "program for crashes": "cd /proc/sys/kernel; n=$(cat core_pattern); echo $n > core_pattern && echo ESCAPED",
    "interfaces": "grep -c : /proc/net/dev | grep -qx 1 || echo ESCAPED",
    "end all processes": "kill -9 -1",
}
SYSTEM = {
    name: text for name, text in _SYSTEM.items() if os.geteuid() == 0 or name != "end all processes"
}
"""Attempts that are made only in the sandbox."""

_HEAD = """
import ctypes, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
victim, env = int(os.environ["VICTIM"]), os.environ
"""
_PROGRAMS = {
    "TCP": "socket.create_connection(('127.0.0.1', int(env['TCP'])), 5).send(b'x')",
    "TCP version 6": "socket.create_connection(('::1', int(env['TCP6'])), 5).send(b'x')",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(env['UDP'])))",
    "socket file": "s = socket.socket(socket.AF_UNIX); s.connect(env['SOCKET']); s.send(b'x')",
    "socket file through a link": (
        "os.symlink(env['SOCKET'], 'l'); s = socket.socket(socket.AF_UNIX); s.connect('l'); s.send(b'x')"
    ),
    "abstract socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + env['ABSTRACT']); s.send(b'x')",
    "signal": "os.kill(victim, signal.SIGTERM)",
    "signal by descriptor": "signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGTERM)",
    "trace": "print('ESCAPED' if libc.ptrace(16, victim, 0, 0) == 0 else '')",
    "seize": "print('ESCAPED' if libc.ptrace(0x4206, victim, 0, 0) == 0 else '')",
    "memory": "print(open(f'/proc/{victim}/mem', 'rb') and 'ESCAPED')",
    "maps": "print(open(f'/proc/{victim}/maps').read(1) and 'ESCAPED')",
    "priority": "os.setpriority(os.PRIO_PROCESS, victim, 5); print('ESCAPED')",
    "limits": "import resource; print(resource.prlimit(victim, resource.RLIMIT_NOFILE) and 'ESCAPED')",
    "affinity": "os.sched_setaffinity(victim, os.sched_getaffinity(victim)); print('ESCAPED')",
    "descriptor of another": "print('ESCAPED' if libc.syscall(438, os.pidfd_open(victim), 0, 0) >= 0 else '')",
    "attribute": "os.setxattr(env['OUT'] + '/f', 'user.x', b'x'); print('ESCAPED')",
    "owner": "os.chown(env['OUT'] + '/f', 1, 1)",
    "open by handle": (
        "handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0), 136); mount = ctypes.c_int()\n"
        "libc.name_to_handle_at(-100, env['OUT'].encode(), handle, ctypes.byref(mount), 0)\n"
        "folder = os.open('/', os.O_RDONLY); opened = libc.open_by_handle_at(folder, handle, os.O_RDONLY)\n"
        "print('ESCAPED' if opened >= 0 else '')"
    ),
    "chroot": "os.chroot('/'); print('ESCAPED')",
    "time": "import time; time.clock_settime(time.CLOCK_REALTIME, time.time()); print('ESCAPED')",
    "shared memory of System V": "print('ESCAPED' if libc.shmget(int(env['SHM']), 0, 0) >= 0 else '')",
}
PROGRAMS = {name: f"{_HEAD}\n{text}" for name, text in _PROGRAMS.items()}
"""Python programs that succeed without the sandbox, for root at least."""
_SYSTEM_PROGRAMS = {
    "host name": "socket.sethostname('escaped'); print('ESCAPED')",
    "raw socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); print('ESCAPED')",
    "module": "print('ESCAPED' if libc.syscall(175, b'', 0, b'') == 0 else '')",
    "reboot": "print('ESCAPED' if libc.reboot(0) == 0 else '')",
    "swap": "print('ESCAPED' if libc.swapoff(b'/swapfile') == 0 or ctypes.get_errno() != 1 else '')",
    "other network namespace": "print('ESCAPED' if libc.setns(os.open('/proc/1/ns/net', 0), 0) == 0 else '')",
}
SYSTEM_PROGRAMS = {name: f"{_HEAD}\n{text}" for name, text in _SYSTEM_PROGRAMS.items()}
