{{/*
The file that both programs read.
*/}}
{{- define "underlay.config" -}}
apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
{{- if eq .Values.config.provider "hcloud" }}
# From the Secret kube-system/{{ .Values.token.secretName }}; only the controller manager has it.
tokenFile: /run/secrets/hcloud/token
{{- end }}
{{- $config := .Values.config }}
{{- if .Values.robot.secretName }}
{{- $config = omit $config "robot" }}
# From the Secret kube-system/{{ .Values.robot.secretName }}, likewise.
{{ dict "robot" (merge (dict "userFile" "/run/secrets/robot/user" "passwordFile" "/run/secrets/robot/password") (get .Values.config "robot" | default dict)) | toYaml }}
{{- end }}
{{- range $key, $value := $config }}
{{- /* An empty text is what values.yaml has for keys without a default. */}}
{{- if not (and (kindIs "string" $value) (empty $value)) }}
{{ dict $key $value | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Not empty if agents answer for addresses in the place of the kernel: a pool has a mover for
which a node is asked for its hardware address. The default mover is layer2.
*/}}
{{- define "underlay.answers" -}}
{{- range dig "addresses" "pools" (list) .Values.config }}
{{- if has (get . "mover" | default "layer2") (list "layer2" "floating-ip") }}yes{{ end }}
{{- end }}
{{- end }}

{{/*
An image. Takes a list: the root, the image's name, its digest.
*/}}
{{- define "underlay.image" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $digest := index . 2 }}
{{- $tag := $root.Values.images.tag | default $root.Chart.AppVersion }}
{{- printf "%s/%s" $root.Values.images.registry $name }}
{{- if $digest }}@{{ $digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{/*
Where the kubelet asks for health, by the address that the program listens on.
The pod's own address may not be known yet on a node that is new.
*/}}
{{- define "underlay.probeHost" -}}
{{- get (dict "0.0.0.0" "127.0.0.1" "::" "::1") . | default . | toYaml }}
{{- end }}
