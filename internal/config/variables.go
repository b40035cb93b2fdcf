package config

import (
	"maps"
	"slices"
	"strings"
)

// variablePrefixes begin the names of all variables that are settings of the cloud
// and of dedicated servers.
func variablePrefixes() []string { return []string{"HCLOUD_", "ROBOT_"} }

// variablePrefix is the one of them that the name begins with, or empty.
func variablePrefix(name string) string {
	for _, prefix := range variablePrefixes() {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// UnknownVariables warns of each variable in environ, a list as os.Environ returns
// it, that looks like a setting and is none: without a word, whoever mistyped one,
// or brought it along from another program, would wait for its effect. It is no
// error, because a cluster that works must not lose its controllers over a
// variable that does nothing. A value is never repeated, it might be a secret.
func UnknownVariables(environ []string) []Warning {
	set := map[string]bool{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); value != "" && variablePrefix(name) != "" {
			set[name] = true
		}
	}
	known := knownVariables()
	var warnings []Warning
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(known, name) && !ofService(name, set) {
			warnings = append(warnings, Warning{Field: name, Problem: "is not known and has no effect; " + advice(name, known)})
		}
	}
	return warnings
}

// knownVariables are those that have an effect, and those of which foreign knows
// why they have none.
func knownVariables() []string {
	var names []string
	for _, row := range reference(&draft{}) {
		if variablePrefix(row.env) != "" {
			names = append(names, row.env)
		}
	}
	for _, v := range foreign() {
		names = append(names, v.name)
	}
	return names
}

// advice names the nearest known variable of the same prefix, which doesn't make two
// names alike.
func advice(name string, known []string) string {
	prefix := variablePrefix(name)
	var endings []string
	for _, k := range known {
		if ending, same := strings.CutPrefix(k, prefix); same {
			endings = append(endings, ending)
		}
	}
	if nearest := nearestKey(strings.TrimPrefix(name, prefix), endings); nearest != "" {
		return "did you mean " + prefix + nearest + "?"
	}
	return "unset it; docs/reference/configuration.md lists those that have one"
}

// ofService reports whether a variable is one of those by which a pod learns of the
// Services in its namespace, such as hcloud-csi's. Each Service has several, and
// always <NAME>_SERVICE_HOST.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
func ofService(name string, set map[string]bool) bool {
	for other := range set {
		service, is := strings.CutSuffix(other, "_SERVICE_HOST")
		if is && (name == service+"_PORT" || strings.HasPrefix(name, service+"_PORT_") || strings.HasPrefix(name, service+"_SERVICE_")) {
			return true
		}
	}
	return false
}
