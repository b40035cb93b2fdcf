{{/*
Everything that the schema can't say, or not in words that help: one line for each
mistake, with field, value and remedy, as the programs write them. Empty where all
is well. The programs refuse the same and some more; test/chart compares.
*/}}
{{- define "underlay.mistakes" }}
{{- include "underlay.mistakes.needed" . }}
{{- include "underlay.mistakes.ranges" . }}
{{- include "underlay.mistakes.pool" . }}
{{- include "underlay.mistakes.pools" . }}
{{- include "underlay.mistakes.settings" . }}
{{- include "underlay.mistakes.texts" . }}
{{- include "underlay.mistakes.provider" . }}
{{- include "underlay.mistakes.inventory" . }}
{{- include "underlay.mistakes.env" . }}
{{- include "underlay.mistakes.monitoring" . }}
{{- end }}

{{/*
One mistake. Takes a list: the value's name, the value (nil: not to be shown), what
is wrong with it, what to do.
*/}}
{{- define "underlay.mistake" }}
{{- $value := index . 1 }}
- {{ index . 0 }}{{ if not (kindIs "invalid" $value) }} {{ kindIs "string" $value | ternary $value (toJson $value) | trunc 80 | quote }}{{ end }}: {{ index . 2 }}; {{ index . 3 }}
{{- end }}

{{/*
The items of a text with commas, as a list in JSON.
*/}}
{{- define "underlay.split" -}}
{{- $items := list }}
{{- if . }}{{ range splitList "," . }}{{ $items = append $items (trim .) }}{{ end }}{{ end }}
{{- toJson $items }}
{{- end }}

{{/*
What has no default.
*/}}
{{- define "underlay.mistakes.needed" }}
{{- $config := .Values.config }}
{{- $cloud := eq $config.provider "hcloud" }}
{{- if ne .Release.Namespace "kube-system" }}
  {{- include "underlay.mistake" (list "namespace" .Release.Namespace "the programs keep their lease and ledger in kube-system, and system priorities belong there" "add --namespace kube-system") }}
{{- end }}
{{- if and $cloud .Values.configureCloudRoutes (ne (dig "families" "ipv4" "" $config) "node") (not (get $config "network")) }}
  {{- include "underlay.mistake" (list "config.network" nil "no network is given to hold the routes" "add --set config.network= and its ID or name") }}
{{- end }}
{{- if not (or .Values.clusterCIDR (hasKey $config "pools")) }}
  {{- include "underlay.mistake" (list "clusterCIDR" nil "the pods' range is not given" "add --set clusterCIDR= and kubeadm's podSubnet, such as 10.244.0.0/16; or set config.pools") }}
{{- end }}
{{- if not .Values.serviceCIDR }}
  {{- include "underlay.mistake" (list "serviceCIDR" nil "the Services' range is not given, and podCIDRs could be taken from it" "give kubeadm's serviceSubnet, such as 10.96.0.0/12") }}
{{- end }}
{{- if and .Values.agent.enabled (not .Values.apiServer) }}
  {{- include "underlay.mistake" (list "apiServer" nil "agents don't know the API server" "add --set apiServer= and its URL, such as https://10.0.0.2:6443, which works without kube-proxy; or --set agent.enabled=false") }}
{{- end }}
{{- if and $cloud (not .Values.token.secretName) }}
  {{- include "underlay.mistake" (list "token.secretName" nil "provider hcloud needs a token" "name the Secret in kube-system that holds it") }}
{{- end }}
{{- end }}

{{/*
The ranges that kubeadm knows too, and other prefixes.
*/}}
{{- define "underlay.mistakes.ranges" }}
{{- range $field, $text := dict "clusterCIDR" .Values.clusterCIDR "serviceCIDR" .Values.serviceCIDR }}
  {{- $items := include "underlay.split" $text | fromJsonArray }}
  {{- range $items }}{{ include "underlay.mistakes.prefix" (list $field .) }}{{ end }}
  {{- if gt (len $items) 2 }}
    {{- include "underlay.mistake" (list $field $text (printf "has %d prefixes" (len $items)) "give at most two, one of each address family") }}
  {{- else if eq (len $items) 2 }}
    {{- $one := include "underlay.network" (first $items) | trunc 4 }}
    {{- if and $one (eq $one (include "underlay.network" (last $items) | trunc 4)) }}
      {{- include "underlay.mistake" (list $field $text (printf "has two prefixes of the family %s" $one) "give one prefix, or one IPv4 and one IPv6 prefix") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range get .Values.config "exclude" | default list }}
  {{- include "underlay.mistakes.prefix" (list "config.exclude" (trim .)) }}
{{- end }}
{{- $balancers := get .Values.config "loadBalancers" | default dict }}
{{- if hasKey $balancers "privateSubnetIPRange" }}
  {{- include "underlay.mistakes.prefix" (list "config.loadBalancers.privateSubnetIPRange" $balancers.privateSubnetIPRange) }}
{{- end }}
{{- if and (hasKey $balancers "adoptable") (not $balancers.adoptable) }}
  {{- include "underlay.mistake" (list "config.loadBalancers.adoptable" nil "has no load balancer" "write at least one, or remove it") }}
{{- end }}
{{- range $i, $one := get $balancers "adoptable" | default list }}
  {{- range list "namespace" "service" }}
    {{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" (get $one .)) }}
      {{- include "underlay.mistake" (list (printf "config.loadBalancers.adoptable[%d].%s" $i .) (get $one .) "is not a name in lower-case letters, digits and dashes" "use at most 63 of them, with a letter or digit at both ends") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
Settings of config between each other.
*/}}
{{- define "underlay.mistakes.settings" }}
{{- $config := .Values.config }}
{{- $routes := get $config "routes" | default dict }}
{{- $limit := dig "limit" 100 $routes | int }}
{{- $reserve := dig "reserve" 0 $routes | int }}
{{- if ge $reserve $limit }}
  {{- include "underlay.mistake" (list "config.routes.reserve" $reserve (printf "leaves no route of config.routes.limit %d" $limit) "give a reserve below the limit") }}
{{- end }}
{{- $balancers := get $config "loadBalancers" | default dict }}
{{- if and (hasKey $balancers "location") (hasKey $balancers "networkZone") }}
  {{- include "underlay.mistake" (list "config.loadBalancers.location" $balancers.location "excludes networkZone" "give one of the two") }}
{{- end }}
{{- if and (eq $config.provider "hcloud") (not (get $config "network")) }}
  {{- range list "usePrivateIP" "disablePublicNetwork" }}
    {{- if eq (toString (get $balancers .)) "true" }}
      {{- include "underlay.mistake" (list (print "config.loadBalancers." .) true "needs a network" "give the network's ID or name in config.network, or remove it") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with get $config "quarantine" }}
  {{- $given := include "underlay.milliseconds" . | int64 }}
  {{- if lt $given 60000 }}
    {{- include "underlay.mistake" (list "config.quarantine" . "is not a duration of at least 1m" "give a longer one, such as 5m") }}
  {{- end }}
{{- end }}
{{- range $key, $least := dict "healthCheckInterval" 3 "healthCheckTimeout" 1 }}
  {{- if hasKey $balancers $key }}
    {{- $value := get $balancers $key | toString }}
    {{- $given := regexReplaceAll "^([0-9]+)$" $value "${1}s" | include "underlay.milliseconds" | int }}
    {{- if or (lt $given (mul $least 1000 | int)) (gt $given 60000) (mod $given 1000) }}
      {{- include "underlay.mistake" (list (print "config.loadBalancers." $key) $value (printf "is not a duration in whole seconds from %ds to 60s" $least) "write it as in 15s") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if hasKey $config "tokenFile" }}
  {{- include "underlay.mistake" (list "config.tokenFile" nil "is set by the chart" "remove it, and name the Secret by token.secretName and token.secretKey") }}
{{- end }}
{{- end }}

{{/*
A duration as Go reads it, in milliseconds; 0 if it is none.
*/}}
{{- define "underlay.milliseconds" -}}
{{- $start := toDate "2006" "2000" }}
{{- ((dateModify . $start).Sub $start).Milliseconds }}
{{- end }}

{{/*
Settings of the one provider with the other.
*/}}
{{- define "underlay.mistakes.provider" }}
{{- $config := .Values.config }}
{{- if eq $config.provider "metal" }}
  {{- $cloud := list }}
  {{- range list "endpoint" "network" "instancesAddressFamily" }}
    {{- if get $config . }}{{ $cloud = append $cloud . }}{{ end }}
  {{- end }}
  {{- range $section := list "routes" "loadBalancers" }}
    {{- range keys (get $config $section | default dict) | sortAlpha }}{{ $cloud = append $cloud (printf "%s.%s" $section .) }}{{ end }}
  {{- end }}
  {{- range $cloud }}
    {{- include "underlay.mistake" (list (print "config." .) nil "is about a cloud, and with provider metal there is none" "remove it, or set config.provider to hcloud") }}
  {{- end }}
  {{- range $family, $routing := dict "ipv4" "cloud" "ipv6" "native" }}
    {{- if eq (dig "families" $family "" $config) $routing }}
      {{- include "underlay.mistake" (list (print "config.families." $family) $routing "takes a cloud, and with provider metal there is none" "write node, or remove it") }}
    {{- end }}
  {{- end }}
{{- else if get $config "inventory" }}
  {{- include "underlay.mistake" (list "config.inventory" nil "is only for provider metal, the cloud knows its own servers" "remove it, or set config.provider to metal") }}
{{- end }}
{{- end }}

{{/*
The machines of provider metal.
*/}}
{{- define "underlay.mistakes.inventory" }}
{{- $names := dict }}{{ $owners := dict }}
{{- range $i, $machine := get .Values.config "inventory" | default list }}
  {{- $field := printf "config.inventory[%d]" $i }}
  {{- if not (regexMatch (include "underlay.pattern.name" .) $machine.name) }}
    {{- include "underlay.mistake" (list (print $field ".name") $machine.name "can't be the name of a Node" (include "underlay.remedy.name" .)) }}
  {{- end }}
  {{- with get $names $machine.name }}
    {{- include "underlay.mistake" (list (print $field ".name") $machine.name (print "is also the name of " .) "give each machine the name of its Node") }}
  {{- end }}
  {{- $_ := set $names $machine.name $field }}
  {{- range $text := get $machine "addresses" | default list }}
    {{- $address := trim $text | include "underlay.address" }}
    {{- include "underlay.mistakes.machineAddress" (list (print $field ".addresses") $text $address) }}
    {{- with and $address (get $owners $address) }}
      {{- include "underlay.mistake" (list (print $field ".addresses") $text (print "is already an address of " .) "give each machine addresses of its own") }}
    {{- end }}
    {{- $_ := set $owners $address $field }}
  {{- end }}
  {{- range list "zone" "region" "type" }}
    {{- if and (hasKey $machine .) (not (regexMatch (include "underlay.pattern.label" .) (get $machine .))) }}
      {{- include "underlay.mistake" (list (printf "%s.%s" $field .) (get $machine .) "can't be the value of a label" (include "underlay.remedy.label" .)) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if and (hasKey .Values.config "inventory") (not .Values.config.inventory) }}
  {{- include "underlay.mistake" (list "config.inventory" nil "has no machine" "write at least one, or remove it") }}
{{- end }}
{{- end }}

{{/*
An address that no machine has for itself. Takes a list: the value's name, the text,
its family and bits.
*/}}
{{- define "underlay.mistakes.machineAddress" }}
{{- $field := index . 0 }}{{ $text := index . 1 }}{{ $address := index . 2 }}
{{- $shared := "" }}
{{- range list "0.0.0.0/32" "127.0.0.0/8" "169.254.0.0/16" "224.0.0.0/4" "255.255.255.255/32" "::/127" "::ffff:0:0/96" "fe80::/10" "ff00::/8" }}
  {{- if hasPrefix (include "underlay.network" .) $address }}{{ $shared = . }}{{ end }}
{{- end }}
{{- if not $address }}
  {{- include "underlay.mistake" (list $field $text "is not an address" "write it without a length, such as 192.0.2.7 or 2001:db8::7") }}
{{- else if $shared }}
  {{- include "underlay.mistake" (list $field $text (printf "lies in %s, and other machines can't reach one machine by that" $shared) "give the address of the machine's uplink") }}
{{- end }}
{{- end }}

{{/*
Variables that hold what belongs elsewhere. Their values may be secrets.
*/}}
{{- define "underlay.mistakes.env" }}
{{- $token := "remove it, put the token into a Secret, and name that by token.secretName and token.secretKey" }}
{{- $elsewhere := dict
      "HCLOUD_TOKEN" (list "the token does not belong into values, which end up in files, histories and Helm's own Secrets" $token)
      "HCLOUD_TOKEN_FILE" (list "is set by the chart" $token)
      "ROBOT_PASSWORD" (list "dedicated servers are not in this version, and a password does not belong into values" "remove it")
      "KUBERNETES_SERVICE_HOST" (list "is set by the chart: each replica speaks to the API server of its own node" "remove it")
      "KUBERNETES_SERVICE_PORT" (list "is set by the chart" "remove it, and give the port by ccm.apiServerPort") }}
{{- range $name, $value := .Values.ccm.env }}
  {{- $field := print "ccm.env." $name }}
  {{- with get $elsewhere $name }}
    {{- include "underlay.mistake" (list $field nil (first .) (last .)) }}
  {{- end }}
  {{- if not (regexMatch "^[-._a-zA-Z][-._a-zA-Z0-9]*$" $name) }}
    {{- include "underlay.mistake" (list $field nil "can't be the name of a variable" "use letters, digits, dashes, underscores and dots, and no digit first") }}
  {{- end }}
  {{- if and (eq $name "ROBOT_ENABLED") (not (has (toString $value) (list "" "0" "f" "F" "false" "False" "FALSE"))) }}
    {{- include "underlay.mistake" (list $field nil "dedicated servers are not in this version" "remove it") }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
Metrics that Prometheus couldn't fetch.
*/}}
{{- define "underlay.mistakes.monitoring" }}
{{- if .Values.podMonitor.enabled }}
  {{- $addresses := dict "ccm.bindAddress" .Values.ccm.bindAddress }}
  {{- if .Values.agent.enabled }}{{ $_ := set $addresses "agent.bindAddress" .Values.agent.bindAddress }}{{ end }}
  {{- range $field, $address := $addresses }}
    {{- if has $address (list "127.0.0.1" "::1") }}
      {{- include "underlay.mistake" (list $field $address "Prometheus can't reach this address of another node" "set it to an address that it reaches, such as 0.0.0.0, or podMonitor.enabled to false") }}
    {{- end }}
  {{- end }}
  {{- if not .Values.podMonitor.tokenSecret.name }}
    {{- include "underlay.mistake" (list "podMonitor.tokenSecret.name" nil "the controller manager's metrics ask for a token" "name the Secret in kube-system that holds it") }}
  {{- end }}
{{- end }}
{{- end }}
