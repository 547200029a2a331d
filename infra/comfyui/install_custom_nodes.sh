#!/usr/bin/env bash
# install_custom_nodes.sh LIST FOLDER: put each pack that LIST names (ADDRESS@COMMIT) into FOLDER, with what it needs.
set -euo pipefail
list=$1
folder=$2

while read -r line <&3 || [[ -n $line ]]; do
  line=${line%%#*}
  read -r line <<<"$line" # without spaces around it
  [[ -n $line ]] || continue
  if ! [[ $line =~ ^([^[:space:]]+)@([0-9a-f]{40})$ ]]; then
    echo "$list: '$line' is not ADDRESS@COMMIT: give the commit with all of its 40 digits" >&2
    exit 1
  fi
  address=${BASH_REMATCH[1]}
  commit=${BASH_REMATCH[2]}
  pack=$folder/$(basename "$address" .git)
  echo "custom node: $pack at $commit"
  git clone --quiet "$address" "$pack"
  git -C "$pack" checkout --quiet --detach "$commit"
  rm -rf "$pack/.git"
  if [[ -f $pack/requirements.txt ]]; then
    python -m pip install --requirement "$pack/requirements.txt"
  fi
  if [[ -f $pack/install.py ]]; then
    (cd "$pack" && python install.py)
  fi
done 3<"$list"
