{{/*
The file that both programs read.
*/}}
{{- define "underlay.config" -}}
apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
{{- if eq .Values.config.provider "hcloud" }}
# From the Secret kube-system/{{ .Values.token.secretName }}; only the controller manager mounts it.
tokenFile: /run/secrets/hcloud/token
{{- end }}
{{- $config := .Values.config }}
{{- if .Values.robot.secretName }}
{{- $config = omit $config "robot" }}
# From the Secret kube-system/{{ .Values.robot.secretName }}, likewise.
{{ dict "robot" (merge (dict "userFile" "/run/secrets/robot/user" "passwordFile" "/run/secrets/robot/password") (get .Values.config "robot" | default dict)) | toYaml }}
{{- end }}
{{- range $key, $value := $config }}
{{- /* In values.yaml keys without a default are empty. */}}
{{- if not (and (kindIs "string" $value) (empty $value)) }}
{{ dict $key $value | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Not empty if agents answer ARP and neighbor solicitations for addresses: a pool's mover is
layer2, the default, or floating-ip.
*/}}
{{- define "underlay.answers" -}}
{{- range dig "addresses" "pools" (list) .Values.config }}
{{- if has (get . "mover" | default "layer2") (list "layer2" "floating-ip") }}yes{{ end }}
{{- end }}
{{- end }}

{{/*
An image. The argument is a list: the root, the image's name, its digest.
*/}}
{{- define "underlay.image" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $digest := index . 2 }}
{{- $tag := $root.Values.images.tag | default $root.Chart.AppVersion }}
{{- printf "%s/%s" $root.Values.images.registry $name }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{/*
Host of the kubelet's probes, for the address that the program listens on. On a new node
the pod's own address may not be set yet.
*/}}
{{- define "underlay.probeHost" -}}
{{- get (dict "0.0.0.0" "127.0.0.1" "::" "::1") . | default . | toYaml }}
{{- end }}
