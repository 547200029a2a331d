#!/usr/bin/env bash
# Start ComfyUI. All that it writes goes below COMFYUI_DATA, so that the models may be read-only and the user need not
# be root. Further arguments are ComfyUI's own: --lowvram, --cpu, --preview-method auto …
set -euo pipefail
home=${COMFYUI_HOME:-/opt/comfyui}
data=${COMFYUI_DATA:-/var/lib/comfyui}
port=${COMFYUI_PORT:-8188}

for folder in input output temp user user/default user/default/workflows; do
  if ! mkdir -p "$data/$folder" 2>/dev/null || ! [[ -w $data/$folder ]]; then
    echo "comfyui: user $(id -u) cannot write to $data/$folder: give the folder to that user, or mount a named volume" >&2
    exit 1
  fi
done
if ! [[ -r $home/models && -x $home/models ]]; then
  echo "comfyui: user $(id -u) cannot read $home/models: on the host, chmod -R a+rX the folder that is mounted there" >&2
  exit 1
fi
for workflow in "${COMFYUI_WORKFLOWS:-/opt/workflows}"/*.json; do
  if [[ -e $workflow && ! -e $data/user/default/workflows/${workflow##*/} ]]; then
    cp "$workflow" "$data/user/default/workflows/"
  fi
done

cd "$home"
exec python main.py --listen 0.0.0.0 --port "$port" --disable-auto-launch \
  --input-directory "$data/input" --output-directory "$data/output" --temp-directory "$data" \
  --user-directory "$data/user" --database-url "sqlite:///$data/user/comfyui.db" "$@"
