{{/*
Mistakes that the programs can't report, or report too late: a missing value, a secret in
the wrong place, unreachable metrics. One line each, with field, value and remedy; empty
if there is none. values.schema.json checks the form of values. The programs check the
rest when they start, above all addresses and prefixes, and report every mistake at once.
*/}}
{{- define "underlay.mistakes" }}
{{- include "underlay.mistakes.missing" . }}
{{- include "underlay.mistakes.secrets" . }}
{{- include "underlay.mistakes.monitoring" . }}
{{- end }}

{{/*
One mistake. The argument is a list: the value's name, the value (nil: not shown), the
problem, the remedy.
*/}}
{{- define "underlay.mistake" }}
- {{ index . 0 }}{{ with index . 1 }} {{ quote . }}{{ end }}: {{ index . 2 }}; {{ index . 3 }}
{{- end }}

{{- define "underlay.mistakes.missing" }}
{{- $config := .Values.config }}
{{- $cloud := eq $config.provider "hcloud" }}
{{- if ne .Release.Namespace "kube-system" }}
  {{- include "underlay.mistake" (list "namespace" .Release.Namespace "the programs keep their lease and ledger in kube-system, and system priorities belong there" "add --namespace kube-system") }}
{{- end }}
{{- if and $cloud .Values.configureCloudRoutes (ne (dig "families" "ipv4" "" $config) "node") (not (get $config "network")) }}
  {{- include "underlay.mistake" (list "config.network" nil "the network that holds the routes is missing" "add --set config.network= and its ID or name") }}
{{- end }}
{{- if not (or .Values.clusterCIDR (hasKey $config "pools")) }}
  {{- include "underlay.mistake" (list "clusterCIDR" nil "the pods' range is missing" "add --set clusterCIDR= and kubeadm's podSubnet, such as 10.244.0.0/16; or set config.pools") }}
{{- end }}
{{- if not .Values.serviceCIDR }}
  {{- include "underlay.mistake" (list "serviceCIDR" nil "the Services' range is missing, and podCIDRs could be taken from it" "set it to kubeadm's serviceSubnet, such as 10.96.0.0/12") }}
{{- end }}
{{- if and .Values.agent.enabled (not .Values.apiServer) }}
  {{- include "underlay.mistake" (list "apiServer" nil "agents need the API server's URL" "add --set apiServer= and a URL that works without kube-proxy, such as https://10.0.0.2:6443; or --set agent.enabled=false") }}
{{- end }}
{{- if and .Values.robot.secretName (not $cloud) }}
  {{- include "underlay.mistake" (list "robot.secretName" nil "Robot provides dedicated servers of a cluster in the cloud, and provider metal has no cloud" "remove it, or set config.provider to hcloud") }}
{{- end }}
{{- if and $cloud (not .Values.token.secretName) }}
  {{- include "underlay.mistake" (list "token.secretName" nil "provider hcloud needs a token" "name the Secret in kube-system that holds it") }}
{{- end }}
{{- end }}

{{/*
Values that may contain a misplaced secret. They are never printed.
*/}}
{{- define "underlay.mistakes.secrets" }}
{{- $remove := "remove it, put the token into a Secret, and set token.secretName and token.secretKey" }}
{{- $robot := "remove it, put user and password into a Secret, and set robot.secretName" }}
{{- $chart := "is set by the chart" }}
{{- $elsewhere := dict
      "HCLOUD_TOKEN" (list "values must not contain the token, because they are stored in files, histories and Helm's own Secrets" $remove)
      "HCLOUD_TOKEN_FILE" (list $chart $remove)
      "ROBOT_USER" (list "values must not contain credentials" $robot)
      "ROBOT_PASSWORD" (list "values must not contain credentials" $robot)
      "ROBOT_USER_FILE" (list $chart $robot)
      "ROBOT_PASSWORD_FILE" (list $chart $robot)
      "KUBERNETES_SERVICE_HOST" (list (print $chart ": each replica connects to the API server of its own node") "remove it")
      "KUBERNETES_SERVICE_PORT" (list $chart "remove it, and set ccm.apiServerPort") }}
{{- range $name, $_ := .Values.ccm.env }}
  {{- with get $elsewhere $name }}
    {{- include "underlay.mistake" (list (print "ccm.env." $name) nil (first .) (last .)) }}
  {{- end }}
{{- end }}
{{- if hasKey .Values.config "tokenFile" }}
  {{- include "underlay.mistake" (list "config.tokenFile" nil $chart $remove) }}
{{- end }}
{{- range $key := list "userFile" "passwordFile" }}
  {{- if hasKey (get $.Values.config "robot" | default dict) $key }}
    {{- include "underlay.mistake" (list (print "config.robot." $key) nil $chart $robot) }}
  {{- end }}
{{- end }}
{{- with dig "robot" "endpoint" "" .Values.config }}
  {{- if regexMatch "[@?#]" . }}
    {{- include "underlay.mistake" (list "config.robot.endpoint" nil "has more than scheme, host and path (not shown, it might hold credentials)" "write it as in https://robot-ws.your-server.de") }}
  {{- end }}
{{- end }}
{{- with get .Values.config "endpoint" }}
  {{- if regexMatch "[@?#]" . }}
    {{- include "underlay.mistake" (list "config.endpoint" nil "has more than scheme, host and version path (not shown, it might hold credentials)" "write it as in https://api.hetzner.cloud/v1") }}
  {{- end }}
{{- end }}
{{- range $field, $arguments := dict "ccm.extraArgs" .Values.ccm.extraArgs "agent.extraArgs" .Values.agent.extraArgs }}
  {{- range $i, $argument := $arguments }}
    {{- if not (regexMatch "^--[a-z][-._a-zA-Z0-9]*(=(?s:.*))?$" $argument) }}
      {{- include "underlay.mistake" (list (printf "%s[%d]" $field $i) nil "is not a flag (not shown, it might hold a secret)" "write --flag=value as one item of the list") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $field, $secret := dict "token" .Values.token "robot" .Values.robot "podMonitor.tokenSecret" .Values.podMonitor.tokenSecret "serviceMonitor.tokenSecret" .Values.serviceMonitor.tokenSecret }}
  {{- range $key, $name := $secret }}
    {{- $pattern := ternary "^[-._a-zA-Z0-9]+$" "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$" (hasSuffix "key" (lower $key)) }}
    {{- if not (regexMatch $pattern $name) }}
      {{- include "underlay.mistake" (list (printf "%s.%s" $field $key) nil "can't be a Secret's name or key (not shown, it might be the token itself)" "name the Secret in lower-case letters, digits, dashes and dots, and the key without blanks or slashes") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "underlay.mistakes.monitoring" }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
  {{- include "underlay.mistake" (list "serviceMonitor.enabled" nil "podMonitor.enabled is true as well, and everything would be scraped twice" "set one of them to false") }}
{{- end }}
{{- range $name := list "podMonitor" "serviceMonitor" }}
  {{- $monitor := get $.Values $name }}
  {{- if $monitor.enabled }}
    {{- range $field := ternary (list "ccm" "agent") (list "ccm") $.Values.agent.enabled }}
      {{- $address := (get $.Values $field).bindAddress }}
      {{- if has $address (list "127.0.0.1" "::1") }}
        {{- include "underlay.mistake" (list (print $field ".bindAddress") $address "Prometheus can't reach this address on another node" (printf "set it to an address that it reaches, such as 0.0.0.0, or %s.enabled to false" $name)) }}
      {{- end }}
    {{- end }}
    {{- if not $monitor.tokenSecret.name }}
      {{- include "underlay.mistake" (list (print $name ".tokenSecret.name") nil "the controller manager's metrics require a token" "name the Secret in kube-system that holds it") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if and .Values.dashboards.enabled (hasPrefix "app.kubernetes.io/" .Values.dashboards.label) }}
  {{- include "underlay.mistake" (list "dashboards.label" .Values.dashboards.label "the chart sets labels of this prefix itself" "name the label that Grafana's sidecar selects, such as grafana_dashboard") }}
{{- end }}
{{- end }}
