{{/*
What podCIDRs are carved from, as far as it can be read: config.pools, or one pool
for each clusterCIDR. A list in JSON. mask is 0 where only the programs know it.
*/}}
{{- define "underlay.pools" -}}
{{- $pools := list }}
{{- /* The agent doesn't know those flags. */}}
{{- $maskElsewhere := and (not .Values.agent.enabled) (contains "--node-cidr-mask-size" (join " " .Values.ccm.extraArgs)) }}
{{- range $i, $pool := get .Values.config "pools" | default list }}
  {{- $source := hasKey $pool "source" }}
  {{- $network := include "underlay.network" (get $pool "cidr") }}
  {{- $default := ternary 80 (ternary 24 64 (hasPrefix "IPv4" $network)) $source }}
  {{- if ternary (not (hasKey $pool "cidr")) (ne $network "") $source }}
    {{- $pools = append $pools (dict
      "field" (printf "config.pools[%d].%s" $i (ternary "source" "cidr" $source))
      "what" (printf "pool %s" $pool.name)
      "text" (ternary "node" (get $pool "cidr") $source)
      "network" $network
      "source" $source
      "nodeMask" (ternary (printf "config.pools[%d].nodeMask" $i) "" (hasKey $pool "nodeMask"))
      "mask" (get $pool "nodeMask" | default (ternary 0 $default $maskElsewhere))) }}
  {{- end }}
{{- else }}
  {{- range include "underlay.split" .Values.clusterCIDR | fromJsonArray }}
    {{- with include "underlay.network" . }}
      {{- $pools = append $pools (dict
        "field" "clusterCIDR"
        "what" "clusterCIDR"
        "text" (include "underlay.prefix" .)
        "network" .
        "source" false
        "nodeMask" ""
        "mask" (ternary 0 (ternary 24 64 (hasPrefix "IPv4" .)) $maskElsewhere)) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- toJson $pools }}
{{- end }}

{{/*
Mistakes in how each pool is written.
*/}}
{{- define "underlay.mistakes.pool" }}
{{- $names := dict }}
{{- range $i, $pool := get .Values.config "pools" | default list }}
  {{- $field := printf "config.pools[%d]" $i }}
  {{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" $pool.name) }}
    {{- include "underlay.mistake" (list (print $field ".name") $pool.name "is not a name in lower-case letters, digits and dashes" "use at most 63 of them, with a letter or digit at both ends") }}
  {{- end }}
  {{- with get $names $pool.name }}
    {{- include "underlay.mistake" (list (print $field ".name") $pool.name (print "is also the name of " .) "give each pool a name of its own") }}
  {{- end }}
  {{- $_ := set $names $pool.name $field }}
  {{- if and (hasKey $pool "cidr") (hasKey $pool "source") }}
    {{- include "underlay.mistake" (list (print $field ".source") $pool.source "excludes cidr" "give one of the two") }}
  {{- else if hasKey $pool "cidr" }}
    {{- include "underlay.mistakes.prefix" (list (print $field ".cidr") $pool.cidr) }}
  {{- else if not (hasKey $pool "source") }}
    {{- include "underlay.mistake" (list (print $field ".cidr") nil "is missing" "give a prefix, such as 10.245.0.0/16, or source: node for IPv6 from each server's own /64") }}
  {{- end }}
  {{- if and (hasKey $pool "nodeSelector") (not (trim $pool.nodeSelector)) }}
    {{- include "underlay.mistake" (list (print $field ".nodeSelector") "" "is empty" "remove it if the pool is for all Nodes") }}
  {{- end }}
{{- end }}
{{- if and (hasKey .Values.config "pools") (not .Values.config.pools) }}
  {{- include "underlay.mistake" (list "config.pools" nil "has no pool" "write at least one, or remove it") }}
{{- end }}
{{- end }}

{{/*
Mistakes between pools and everything that they may not touch.
*/}}
{{- define "underlay.mistakes.pools" }}
{{- $root := . }}
{{- $pools := include "underlay.pools" . | fromJsonArray }}
{{- $given := get .Values.config "pools" | default (include "underlay.split" .Values.clusterCIDR | fromJsonArray) }}
{{- $excluded := list }}
{{- range get .Values.config "exclude" | default list }}
  {{- $excluded = append $excluded (include "underlay.network" (trim .)) }}
{{- end }}
{{- range $i, $pool := $pools }}
  {{- include "underlay.mistakes.mask" $pool }}
  {{- range $before := slice $pools 0 $i }}
    {{- if and (ne $pool.field "clusterCIDR") (include "underlay.overlap" (list $pool.network $before.network)) }}
      {{- include "underlay.mistake" (list $pool.field $pool.text (printf "overlaps the %s (%s)" $before.what $before.text) "choose prefixes that lie apart") }}
    {{- end }}
  {{- end }}
  {{- range include "underlay.split" $root.Values.serviceCIDR | fromJsonArray }}
    {{- if include "underlay.overlap" (list $pool.network (include "underlay.network" .)) }}
      {{- include "underlay.mistake" (list $pool.field $pool.text (printf "overlaps serviceCIDR %s" .) "choose ranges that lie apart, and give kubeadm the same ones") }}
    {{- end }}
  {{- end }}
  {{- range $excluded }}
    {{- if and . $pool.network (hasPrefix . $pool.network) }}
      {{- include "underlay.mistake" (list "config.exclude" (include "underlay.prefix" .) (printf "leaves nothing of the %s (%s)" $pool.what $pool.text) "exclude less, or choose another prefix for the pool") }}
    {{- end }}
  {{- end }}
  {{- if eq $root.Values.config.provider "hcloud" }}
    {{- include "underlay.mistakes.cloudPool" (list $root $pool $excluded) }}
  {{- else if $pool.source }}
    {{- include "underlay.mistake" (list $pool.field "node" "takes a provider that knows each server's own prefix, and metal does not" "give a cidr instead, such as fd00:10:244::/56") }}
  {{- end }}
{{- end }}
{{- if and $pools (eq (len $pools) (len $given)) }}
  {{- include "underlay.mistakes.missing" (list . $pools) }}
{{- end }}
{{- end }}

{{/*
A node mask that the pool can't be carved by.
*/}}
{{- define "underlay.mistakes.mask" }}
{{- $ipv4 := hasPrefix "IPv4" .network }}
{{- $length := ternary 65 (sub (len .network) 5) .source | int }}
{{- $roomy := ternary 30 126 $ipv4 }}
{{- $longest := ternary $roomy (min $roomy (add $length (ternary 16 48 $ipv4))) .source | int }}
{{- if gt $length $longest }}
  {{- include "underlay.mistake" (list .field .text "is too small for a node's podCIDR" (printf "give a prefix of length %d or shorter" $longest)) }}
{{- else if and .mask (or (lt (int .mask) $length) (gt (int .mask) $longest)) }}
  {{- $bounds := printf "%d to %d" $length $longest }}
  {{- if .nodeMask }}
    {{- include "underlay.mistake" (list .nodeMask .mask "is no length of podCIDRs that the pool can be carved into" (print "give one from " $bounds)) }}
  {{- else }}
    {{- include "underlay.mistake" (list .field .text (printf "can be carved into podCIDRs of length %s, and not of %d" $bounds (int .mask)) "choose another prefix, or give a pool of config.pools a nodeMask") }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
What the cloud wants of a pool. Takes a list: the root, the pool, what is excluded.
*/}}
{{- define "underlay.mistakes.cloudPool" }}
{{- $root := index . 0 }}{{ $pool := index . 1 }}{{ $excluded := index . 2 }}
{{- if hasPrefix "IPv4" $pool.network }}
  {{- $private := false }}
  {{- range list "10.0.0.0/8" "172.16.0.0/12" "192.168.0.0/16" }}
    {{- if hasPrefix (include "underlay.network" .) $pool.network }}{{ $private = true }}{{ end }}
  {{- end }}
  {{- if and (include "underlay.routable" $root) (not $private) }}
    {{- include "underlay.mistake" (list $pool.field $pool.text "lies outside RFC 1918, and the cloud routes nothing else" "choose a prefix within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, or let nodes route, by config.families.ipv4: node") }}
  {{- end }}
  {{- $gateway := include "underlay.address" "172.31.1.1" }}
  {{- $open := hasPrefix $pool.network $gateway }}
  {{- range $excluded }}
    {{- if and . (hasPrefix . $gateway) }}{{ $open = false }}{{ end }}
  {{- end }}
  {{- if $open }}
    {{- include "underlay.mistake" (list $pool.field $pool.text "holds 172.31.1.1, every server's gateway in this cloud" "choose another prefix, or put 172.31.1.1/32 into config.exclude") }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
What no pool has, though it has to be in one. Takes a list: the root, all pools.
*/}}
{{- define "underlay.mistakes.missing" }}
{{- $root := first . }}{{ $pools := last . }}
{{- range include "underlay.split" $root.Values.clusterCIDR | fromJsonArray }}
  {{- $network := include "underlay.network" . }}
  {{- $covered := not $network }}
  {{- range $pools }}
    {{- if include "underlay.overlap" (list .network $network) }}{{ $covered = true }}{{ end }}
  {{- end }}
  {{- if not $covered }}
    {{- include "underlay.mistake" (list "clusterCIDR" . "no pool of config.pools has any of it, and podCIDRs that Nodes have from it would count as foreign" "add a pool with this cidr, with state: draining if nothing more shall be handed out; or remove it here") }}
  {{- end }}
{{- end }}
{{- $ipv4 := false }}
{{- range $pools }}
  {{- if hasPrefix "IPv4" .network }}{{ $ipv4 = true }}{{ end }}
{{- end }}
{{- if and (include "underlay.routable" $root) (not $ipv4) }}
  {{- include "underlay.mistake" (list (ternary "config.pools" "clusterCIDR" (hasKey $root.Values.config "pools")) nil "has no IPv4 prefix, and the cloud's networks route only IPv4" "add one, or let nodes route, by config.families.ipv4: node") }}
{{- end }}
{{- end }}

{{/*
Whether the cloud's network is to route IPv4: empty if not. An agent can't know
that routes are off, and wants what they need all the same.
*/}}
{{- define "underlay.routable" -}}
{{- if and (eq .Values.config.provider "hcloud") (ne (dig "families" "ipv4" "" .Values.config) "node") (or .Values.configureCloudRoutes .Values.agent.enabled) }}yes{{ end }}
{{- end }}
