{{/*
Everything that a schema can't say, as one list of mistakes, each with what to
change. Empty where all is well.
*/}}
{{- define "underlay.mistakes" -}}
{{- $config := .Values.config }}
{{- $cloud := eq $config.provider "hcloud" }}
{{- if ne .Release.Namespace "kube-system" }}
- namespace {{ .Release.Namespace }}: the programs keep their lease and ledger in kube-system, and system priorities belong there: add --namespace kube-system
{{- end }}
{{- if and $cloud .Values.configureCloudRoutes (ne (dig "families" "ipv4" "" $config) "node") (not $config.network) }}
- config.network: no network is given to hold the routes: add --set config.network= and its ID or name
{{- end }}
{{- if not (or .Values.clusterCIDR (get $config "pools")) }}
- clusterCIDR: the pods' range is not given: add --set clusterCIDR= and kubeadm's podSubnet, such as 10.244.0.0/16; or set config.pools
{{- end }}
{{- if and .Values.agent.enabled (not .Values.apiServer) }}
- apiServer: agents don't know the API server: add --set apiServer= and its URL, such as https://10.0.0.2:6443, which works without kube-proxy; or --set agent.enabled=false
{{- end }}
{{- if and $cloud (not .Values.token.secretName) }}
- token.secretName: provider hcloud needs a token: name the Secret in kube-system that holds it
{{- end }}
{{- if hasKey $config "tokenFile" }}
- config.tokenFile: is set by the chart: remove it, and name the Secret by token.secretName and token.secretKey
{{- end }}
{{- if .Values.podMonitor.enabled }}
{{- $addresses := dict "ccm" .Values.ccm.bindAddress }}
{{- if .Values.agent.enabled }}{{ $_ := set $addresses "agent" .Values.agent.bindAddress }}{{ end }}
{{- range $who, $address := $addresses }}
{{- if has $address (list "127.0.0.1" "::1" "localhost") }}
- {{ $who }}.bindAddress: Prometheus can't reach {{ $address }} of another node: set it to an address that it reaches, such as 0.0.0.0, or podMonitor.enabled to false
{{- end }}
{{- end }}
{{- if not .Values.podMonitor.tokenSecret.name }}
- podMonitor.tokenSecret.name: the controller manager's metrics ask for a token: name the Secret in kube-system that holds it
{{- end }}
{{- end }}
{{- end }}

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
{{- range $key, $value := .Values.config }}
{{- /* An empty text is what values.yaml has for keys without a default. */}}
{{- if not (and (kindIs "string" $value) (empty $value)) }}
{{ dict $key $value | toYaml }}
{{- end }}
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
