{{/*
Addresses and prefixes, which templates know no functions for. Both are taken as
their family and their leading bits: 10.244.0.0/16 is "IPv4 0000101011110100". So
a prefix holds another, or an address, when the other's text begins with its own.
*/}}

{{/*
An address as its family and all of its bits; empty if it is none. IPv6 is read
without an IPv4 address at its end.
*/}}
{{- define "underlay.address" -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" }}
{{- $groups := "([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)?" }}
{{- $bits := "" }}
{{- if regexMatch (printf "^%s([.]%s){3}$" $octet $octet) . }}
  {{- range splitList "." . }}{{ $bits = printf "%s%08b" $bits (int .) }}{{ end }}
  {{- printf "IPv4 %s" $bits }}
{{- else if regexMatch (printf "^%s(::%s)?$" $groups $groups) . }}
  {{- $halves := splitList "::" . }}
  {{- $left := regexFindAll "[^:]+" (first $halves) -1 }}
  {{- $right := regexFindAll "[^:]+" (rest $halves | join "") -1 }}
  {{- $missing := sub 8 (add (len $left) (len $right)) | int }}
  {{- if ternary (eq $missing 0) (ge $missing 1) (eq (len $halves) 1) }}
    {{- range $left }}{{ $bits = printf "%s%016b" $bits (int (print "0x" .)) }}{{ end }}
    {{- range until $missing }}{{ $bits = printf "%s%016b" $bits 0 }}{{ end }}
    {{- range $right }}{{ $bits = printf "%s%016b" $bits (int (print "0x" .)) }}{{ end }}
    {{- printf "IPv6 %s" $bits }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
A prefix as its family and its leading bits; empty if it is none.
*/}}
{{- define "underlay.network" -}}
{{- $parts := splitList "/" . }}
{{- $address := include "underlay.address" (first $parts) }}
{{- $length := rest $parts | join "/" }}
{{- if and $address (regexMatch "^(0|[1-9][0-9]{0,2})$" $length) }}
  {{- $end := add (len "IPv4 ") $length | int }}
  {{- if le $end (len $address) }}{{ trunc $end $address }}{{ end }}
{{- end }}
{{- end }}

{{/*
The prefix as people write it, of its family and leading bits.
*/}}
{{- define "underlay.prefix" -}}
{{- $bits := substr 5 -1 . }}
{{- $groups := list }}
{{- if hasPrefix "IPv4" . }}
  {{- $all := print $bits (repeat 32 "0") }}
  {{- range untilStep 0 32 8 }}{{ $groups = append $groups (substr . (add . 8 | int) $all | print "0b" | int) }}{{ end }}
  {{- join "." $groups }}
{{- else }}
  {{- $all := print $bits (repeat 128 "0") }}
  {{- range untilStep 0 128 16 }}{{ $groups = append $groups (substr . (add . 16 | int) $all | print "0b" | int | printf "%x") }}{{ end }}
  {{- regexReplaceAll "(:0){2,}$" (join ":" $groups) "::" }}
{{- end -}}
/{{ len $bits }}
{{- end }}

{{/*
Whether two prefixes have addresses in common: empty if not.
*/}}
{{- define "underlay.overlap" -}}
{{- $a := first . }}{{ $b := last . }}
{{- if and $a $b (or (hasPrefix $a $b) (hasPrefix $b $a)) }}yes{{ end }}
{{- end }}

{{/*
What is wrong with a prefix, as a mistake. Takes a list: the value's name, the text.
*/}}
{{- define "underlay.mistakes.prefix" }}
{{- $field := first . }}{{ $text := last . }}
{{- $network := include "underlay.network" $text }}
{{- $address := include "underlay.address" (splitList "/" $text | first) }}
{{- if or (and (contains ":" $text) (contains "." $text)) (hasPrefix (include "underlay.network" "::ffff:0:0/96") $address) }}
  {{- include "underlay.mistake" (list $field $text "is an IPv4 prefix in IPv6 notation" "write it in IPv4 notation, such as 10.244.0.0/16") }}
{{- else if not $network }}
  {{- include "underlay.mistake" (list $field $text "is not a prefix" "write address and length, such as 10.244.0.0/16 or fd00:10:244::/56") }}
{{- else if contains "1" (trimPrefix $network $address) }}
  {{- include "underlay.mistake" (list $field $text "has address bits beyond its length" (printf "write %s" (include "underlay.prefix" $network))) }}
{{- end }}
{{- end }}
