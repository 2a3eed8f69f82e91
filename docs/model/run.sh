#!/usr/bin/env bash
# Checks the models in this folder with spin: each must hold, and each of its broken twins must be refuted.
#
#   docs/model/run.sh [--big] [--list] [MODEL...]
#
# MODEL is a file's name without .pml; without one, all are checked. --big adds the sizes that take minutes and up to
# 16 GiB of memory. Without it everything together takes less than three minutes on one core, and 2 GiB.
# Exits with 1 if a model fails or a twin passes, with 2 if it cannot run at all.
set -euo pipefail
cd "$(dirname "$0")"

# MODEL  ci|big  holds|assertion|deadlock  OPTIONS: what must come of it.
# "assertion" and "deadlock" are twins, and the way in which they must fail.
rows='
claim-repair     ci   holds      -DNP=3 -DK=1 -DCELLS=3
claim-repair     ci   holds      -DNP=2 -DK=2 -DCELLS=4 -DABORT
claim-repair     big  holds      -DNP=3 -DK=1 -DCELLS=5
claim-repair     ci   assertion  -DNP=2 -DCELLS=3 -DSTAMPFIRST
claim-repair     ci   deadlock   -DNP=2 -DCELLS=3 -DKEEPINTENT

batch-repair     ci   holds      -DNP=2 -DK=1 -DCELLS=4
batch-repair     big  holds      -DNP=2 -DK=1 -DCELLS=5
batch-repair     big  holds      -DNP=2 -DK=2 -DCELLS=4
batch-repair     ci   assertion  -DNP=2 -DCELLS=4 -DNOFLAG
batch-repair     ci   assertion  -DNP=2 -DCELLS=4 -DJOINANY
batch-repair     ci   assertion  -DNP=2 -DCELLS=4 -DFIRSTFIRST

lap              ci   holds      -DNP=2 -DMAXT=5
lap              big  holds      -DNP=2 -DMAXT=7
lap              ci   assertion  -DNP=2 -DMAXT=4 -DNOGATE
lap              ci   assertion  -DNP=2 -DMAXT=4 -DNOLAP
lap              ci   assertion  -DNP=2 -DMAXT=5 -DFREEFIRST

join             ci   holds      -DMODE=0 -DOLD=true -DCAP=1 -DMAXT=3
join             ci   holds      -DMODE=0 -DOLD=false -DCAP=2 -DMAXT=5
join             ci   holds      -DMODE=1 -DOLD=true -DCAP=1 -DMAXT=3
join             ci   holds      -DMODE=1 -DOLD=false -DCAP=2 -DMAXT=5
join             ci   holds      -DMODE=0 -DOLD=false -DCAP=1 -DMAXT=4 -DTRUST
join             ci   holds      -DMODE=2 -DOLD=false -DCAP=1 -DMAXT=4 -DTRUST
join             big  holds      -DMODE=0 -DOLD=true -DCAP=2 -DMAXT=5
join             big  holds      -DMODE=1 -DOLD=true -DCAP=2 -DMAXT=5
join             big  holds      -DMODE=0 -DOLD=true -DCAP=2 -DMAXT=5 -DTRUST
join             ci   assertion  -DMODE=0 -DOLD=false -DCAP=1 -DMAXT=3 -DTRUST -DNOTAIL
join             ci   assertion  -DMODE=0 -DOLD=false -DCAP=1 -DMAXT=3 -DLOWERS
join             ci   assertion  -DMODE=0 -DOLD=false -DCAP=1 -DMAXT=3 -DEVENLESS
join             ci   assertion  -DMODE=0 -DOLD=true -DCAP=2 -DMAXT=5 -DLATETAIL
join             ci   assertion  -DMODE=2 -DOLD=false -DCAP=1 -DMAXT=3
join             ci   assertion  -DMODE=2 -DOLD=false -DCAP=1 -DMAXT=3 -DTRUST -DONCE

group-claim      ci   holds      -DN=2 -DF=4
group-claim      ci   holds      -DN=3 -DF=2
group-claim      big  holds      -DN=3 -DF=3
group-claim      ci   assertion  -DN=2 -DF=3 -DNOHELP
group-claim      ci   assertion  -DN=2 -DF=3 -DSLOTFIRST
group-claim      ci   assertion  -DN=2 -DF=3 -DENDLAST

group-redeliver  ci   holds      -DN=2 -DF=2 -DE=1
group-redeliver  ci   holds      -DN=2 -DF=1 -DE=1 -DREFUSE
group-redeliver  ci   holds      -DN=2 -DF=2 -DE=1 -DREFUSE -DNOGATE
group-redeliver  big  holds      -DN=2 -DF=2 -DE=1 -DREFUSE
group-redeliver  big  holds      -DN=2 -DF=2 -DE=2 -DREFUSE -DNOGATE
group-redeliver  ci   assertion  -DN=2 -DF=1 -DE=1 -DCLEARFIRST
group-redeliver  ci   assertion  -DN=2 -DF=1 -DE=1 -DORPHANSFIRST
group-redeliver  ci   assertion  -DN=2 -DF=1 -DE=1 -DHEADLAST
group-redeliver  ci   assertion  -DN=2 -DF=2 -DE=1 -DREFUSE -DNOGATE -DFREEFIRST
group-redeliver  ci   assertion  -DN=2 -DF=2 -DE=1 -DREFUSE -DNOGATE -DBITLESS
group-redeliver  ci   assertion  -DN=2 -DF=2 -DE=1 -DREFUSE -DNOGATE -DBITLAST

adopt            ci   holds      -DDEATHS=1
adopt            ci   holds      -DC=1 -DDEATHS=2 -DROUNDS=2 -DSTOP
adopt            ci   holds      -DC=1 -DDEATHS=2 -DROUNDS=2 -DSTOP -DTOPIC
adopt            big  holds      -DDEATHS=1 -DSTOP
adopt            big  holds      -DDEATHS=1 -DTOPIC
adopt            ci   assertion  -DDEATHS=1 -DREPLYFIRST
adopt            ci   assertion  -DDEATHS=1 -DSWEEPFIRST
adopt            ci   assertion  -DDEATHS=1 -DEARLIERWINS
adopt            ci   assertion  -DDEATHS=1 -DIDFIRST
adopt            ci   assertion  -DDEATHS=1 -DNOSECRET
adopt            ci   assertion  -DDEATHS=1 -DGRACE
adopt            ci   assertion  -DDEATHS=1 -DKEEPREST
adopt            ci   assertion  -DDEATHS=1 -DUNTOLD
adopt            ci   deadlock   -DC=1 -DDEATHS=1 -DNOSWEEP
adopt            ci   deadlock   -DC=1 -DDEATHS=1 -DSTOP -DSTOPEARLY
adopt            ci   assertion  -DC=1 -DDEATHS=2 -DTOPIC -DMADEFIRST
adopt            ci   assertion  -DC=1 -DDEATHS=2 -DTOPIC -DGONEFIRST
adopt            ci   assertion  -DDEATHS=1 -DTOPIC -DDROPPED

sleep            ci   holds      -DNP=2 -DNS=1 -DF=3
sleep            ci   holds      -DNP=1 -DNS=2 -DF=2 -DEXCLUSIVE
sleep            ci   holds      -DNP=2 -DNS=2 -DF=2 -DFENCED
sleep            big  holds      -DNP=2 -DNS=2 -DF=2
sleep            big  holds      -DNP=2 -DNS=2 -DF=2 -DSHARED
sleep            ci   assertion  -DNP=1 -DNS=1 -DNOBARRIER
sleep            ci   assertion  -DNP=2 -DNS=1 -DBARRIERFIRST
sleep            ci   assertion  -DNP=2 -DNS=1 -DEARLYBIT
sleep            ci   assertion  -DNP=2 -DNS=1 -DNOBIT
sleep            ci   assertion  -DNP=2 -DNS=1 -DNORING
sleep            ci   assertion  -DNP=2 -DNS=1 -DRINGFIRST
sleep            ci   assertion  -DNP=2 -DNS=2 -DSHARED -DTAKEBACK

room             ci   holds      -DNP=3 -DF=2
room             big  holds      -DNP=3 -DF=2 -DMORE
room             ci   holds      -DNP=2 -DF=3
room             ci   assertion  -DNP=3 -DF=2 -DNOFENCE
room             ci   assertion  -DNP=3 -DF=2 -DNEAR=3
room             ci   assertion  -DNP=3 -DF=2 -DNOWITHDRAW
room             ci   assertion  -DNP=3 -DF=2 -DNOMOVE

revoke           ci   holds      -DK=2
revoke           ci   holds      -DK=1
revoke           ci   assertion  -DK=2 -DNOFENCE
revoke           ci   assertion  -DK=2 -DNOBARRIER
revoke           ci   assertion  -DK=2 -DNOLOCK
revoke           ci   assertion  -DK=2 -DIMPATIENT
revoke           ci   assertion  -DK=2 -DANYCLAIM
'

usage() { sed -n '2,/^set /p' "$0" | sed -e '/^set /d' -e 's/^# \{0,1\}//'; }

big=false list=false models=()
for arg; do
	case $arg in
	--big) big=true ;;
	--list) list=true ;;
	-h | --help) usage; exit 0 ;;
	-*) echo "run.sh: unknown option $arg; see --help" >&2; exit 2 ;;
	*)
		if [ ! -f "$arg.pml" ]; then
			echo "run.sh: no model $arg here; there are:" *.pml >&2
			exit 2
		fi
		models+=("$arg")
		;;
	esac
done
for tool in spin gcc; do
	command -v "$tool" >/dev/null || { echo "run.sh: $tool is missing; Debian and Ubuntu have it in the package $tool" >&2; exit 2; }
done
memory=3500 # MiB
if $big; then memory=16000; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wanted() { # MODEL
	local m
	[ ${#models[@]} -eq 0 ] && return
	for m in "${models[@]}"; do
		[ "$m" = "$1" ] && return
	done
	return 1
}

# check MODEL HOW OPTIONS: leaves pan's report in $work/report, and the processor time of the search in $seconds.
check() {
	local model=$1 optimise
	case $2 in # most of the time goes into compiling
	big) optimise=-O2 ;;
	holds) optimise=-O1 ;;
	*) optimise=-O0 ;;
	esac
	shift 2
	cp "$model.pml" "$work/model.pml"
	(cd "$work" && spin "$@" -a model.pml >compile.log && gcc -w $optimise -DSAFETY -DCOLLAPSE -DMEMLIM="$memory" -o pan pan.c) ||
		{ cat "$work/compile.log" >&2; echo "run.sh: $model $*: does not compile" >&2; exit 2; }
	local TIMEFORMAT=%1U
	seconds=$( { time (cd "$work" && ./pan -m1000000 >report 2>&1 || true); } 2>&1)
}

# verdict: what the report says came of it.
verdict() {
	local report=$work/report
	if grep -q -e 'max search depth too small' -e 'out of memory' -e 'reached -DMEMLIM' "$report"; then
		echo incomplete
	elif grep -q '^pan:.*assertion violated' "$report"; then
		echo assertion
	elif grep -q '^pan:.*invalid end state' "$report"; then
		echo deadlock
	elif grep -q 'errors: 0$' "$report" && ! grep -q 'Search not completed' "$report"; then
		echo holds
	else
		echo incomplete
	fi
}

wrong=0 all=0 began=$SECONDS
printf '%-16s %-58s %-10s %12s %8s %8s\n' model options verdict states seconds MiB
while read -r model size want options; do
	[ -n "$model" ] && wanted "$model" || continue
	[ "$size" = ci ] || $big || continue
	if $list; then
		printf '%-16s %-58s %-10s\n' "$model" "$options" "$want"
		continue
	fi
	# shellcheck disable=SC2086 # options are words
	check "$model" "$([ "$size" = big ] && echo big || echo "$want")" $options
	got=$(verdict)
	states=$(awk '/states, stored/ { print $1; exit }' "$work/report")
	mib=$(awk '/total actual memory usage/ { print int($1); exit }' "$work/report")
	note=
	if [ "$got" != "$want" ]; then
		note="  WRONG: should be $want"
		wrong=$((wrong + 1))
	fi
	all=$((all + 1))
	printf '%-16s %-58s %-10s %12s %8s %8s%s\n' "$model" "$options" "$got" "${states:--}" "$seconds" "${mib:--}" "$note"
done <<<"$rows"
$list && exit 0
printf '%d rows, %d wrong, %d seconds in all\n' "$all" "$wrong" $((SECONDS - began))
[ "$wrong" -eq 0 ]
