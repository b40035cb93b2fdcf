{{/*
Values that are texts of a certain form. A schema would answer with the pattern.
*/}}
{{- define "underlay.mistakes.texts" }}
{{- $root := . }}
{{- $word := "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" }}
{{- $notWord := "is not a name in lower-case letters, digits and dashes" }}
{{- $digest := "^(sha256:[0-9a-f]{64})?$" }}
{{- range list
      (list "clusterName" (include "underlay.pattern.label" .) "can't be the value of a label" (include "underlay.remedy.label" .))
      (list "apiServer" "^(https://[^/\\s]+)?$" "is not the URL of an API server" "write it as in https://10.0.0.2:6443, with https and without a path")
      (list "config.network" "^([^\\s\\p{Z}\\p{Cc}]([^\\p{Cc}]*[^\\s\\p{Z}\\p{Cc}])?)?$" "has spaces around it or control characters in it" "write the ID or the name alone")
      (list "config.routes.maxDeletions" "^0*([1-9][0-9]?|100)%$" "is not a percentage from 1% to 100%" "write it as in 25%")
      (list "config.loadBalancers.location" $word $notWord "use a name such as fsn1, or remove it")
      (list "config.loadBalancers.networkZone" $word $notWord "use a name such as eu-central, or remove it")
      (list "config.loadBalancers.type" $word $notWord "use a name such as lb11, or remove it")
      (list "images.registry" "[^/\\s]$" "is not a registry with its path" "write it as in ghcr.io/underlay-ccm, without a slash at the end")
      (list "images.tag" "^([_a-zA-Z0-9][-._a-zA-Z0-9]{0,127})?$" "is not the tag of an image" "write it as in v0.1.0, or leave it empty for the chart's appVersion")
      (list "images.ccmDigest" $digest "is not a digest" "write sha256: and 64 hexadecimal digits, or leave it empty")
      (list "images.agentDigest" $digest "is not a digest" "write sha256: and 64 hexadecimal digits, or leave it empty")
      (list "images.pullSecrets" (include "underlay.pattern.name" .) "can't be the name of a Secret" (include "underlay.remedy.name" .))
      (list "agent.uplinks" "^[^/\\s]{1,15}$" "can't be the name of an interface" "name it as ip link does, such as eth1")
      (list "agent.cniConfDir" "^/" "is not an absolute path" "write it as in /etc/cni/net.d")
      (list "agent.cniBinDir" "^/" "is not an absolute path" "write it as in /opt/cni/bin")
      (list "podMonitor.interval" "^[0-9]+(ms|s|m|h)$" "is not a duration as Prometheus reads it" "write it as in 30s")
}}
  {{- $field := index . 0 }}{{ $pattern := index . 1 }}{{ $problem := index . 2 }}{{ $remedy := index . 3 }}
  {{- $at := $root.Values }}
  {{- range splitList "." $field }}{{ $at = ternary (get $at .) nil (hasKey ($at | default dict) .) }}{{ end }}
  {{- range kindIs "slice" $at | ternary $at (list $at) }}
    {{- if and (kindIs "string" .) (not (regexMatch $pattern .)) }}
      {{- include "underlay.mistake" (list $field . $problem $remedy) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $field, $address := dict "ccm.bindAddress" .Values.ccm.bindAddress "agent.bindAddress" .Values.agent.bindAddress "agent.networkGateway" .Values.agent.networkGateway }}
  {{- if not (or (include "underlay.address" $address) (and (eq $field "agent.networkGateway") (eq $address ""))) }}
    {{- include "underlay.mistake" (list $field $address "is not an address" "write it without a length, such as 10.0.0.1 or fd00::1") }}
  {{- end }}
{{- end }}
{{- include "underlay.mistakes.hidden" . }}
{{- end }}

{{/*
Values that may hold a secret, if somebody has put one into the wrong place. They
aren't repeated.
*/}}
{{- define "underlay.mistakes.hidden" }}
{{- with get .Values.config "endpoint" }}
  {{- if not (regexMatch "^https?://[^/@?#\\s]+/+[^/@?#\\s][^@?#\\s]*$" .) }}
    {{- include "underlay.mistake" (list "config.endpoint" nil "is not a URL with scheme, host and version path alone (not shown, it might hold credentials)" "write it as in https://api.hetzner.cloud/v1") }}
  {{- end }}
{{- end }}
{{- range $field, $arguments := dict "ccm.extraArgs" .Values.ccm.extraArgs "agent.extraArgs" .Values.agent.extraArgs }}
  {{- range $i, $argument := $arguments }}
    {{- if not (regexMatch "^--[a-z][-._a-zA-Z0-9]*(=(?s:.*))?$" $argument) }}
      {{- include "underlay.mistake" (list (printf "%s[%d]" $field $i) nil "is not a flag (not shown, it might hold a secret)" "write --flag=value as one item of the list") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- $monitor := .Values.podMonitor.tokenSecret }}
{{- range $field, $name := dict "token.secretName" .Values.token.secretName "podMonitor.tokenSecret.name" $monitor.name }}
  {{- if and $name (not (regexMatch (include "underlay.pattern.name" .) $name)) }}
    {{- include "underlay.mistake" (list $field nil "can't be the name of a Secret (not shown, it might be the token itself)" (include "underlay.remedy.name" .)) }}
  {{- end }}
{{- end }}
{{- range $field, $key := dict "token.secretKey" .Values.token.secretKey "podMonitor.tokenSecret.key" $monitor.key }}
  {{- if not (regexMatch "^[-._a-zA-Z0-9]+$" $key) }}
    {{- include "underlay.mistake" (list $field nil "can't be a key of a Secret (not shown, it might be the token itself)" "use letters, digits, dashes, underscores and dots") }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
Names of Nodes and Secrets, and values of labels.
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
*/}}
{{- define "underlay.pattern.name" -}}
^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$
{{- end }}

{{- define "underlay.remedy.name" -}}
use at most 253 lower-case letters, digits, dashes and dots, with a letter or digit at both ends
{{- end }}

{{- define "underlay.pattern.label" -}}
^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$
{{- end }}

{{- define "underlay.remedy.label" -}}
use at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at both ends
{{- end }}
