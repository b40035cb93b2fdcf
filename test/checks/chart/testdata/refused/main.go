// Command refused tells what Underlay's programs refuse of settings: it reads a
// list of them from standard input and writes a list of answers. It is compiled
// with the main module, because package config is no part of the module around it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/internal/config"
)

// settings are what the chart gives to both programs.
type settings struct {
	File           string
	Manager, Agent []string // arguments; no agent: none
	Env            map[string]string
}

// answer is what each program says, empty if it starts.
type answer struct{ Manager, Agent string }

func main() {
	var asked []settings
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answers := make([]answer, len(asked))
	for i, s := range asked {
		answers[i] = answer{Manager: s.manager(), Agent: s.agent()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (s settings) manager() string {
	flags := config.Flags{
		AllocateNodeCIDRs:     value(s.Manager, "--allocate-node-cidrs") == "true",
		ConfigureCloudRoutes:  value(s.Manager, "--configure-cloud-routes") == "true",
		ClusterCIDR:           value(s.Manager, "--cluster-cidr"),
		ServiceClusterIPRange: value(s.Manager, "--service-cluster-ip-range"),
		NodeCIDRMaskSize:      number(s.Manager, "--node-cidr-mask-size"),
		NodeCIDRMaskSizeIPv4:  number(s.Manager, "--node-cidr-mask-size-ipv4"),
		NodeCIDRMaskSizeIPv6:  number(s.Manager, "--node-cidr-mask-size-ipv6"),
		ClusterName:           value(s.Manager, "--cluster-name"),
	}
	token := func(string) ([]byte, error) { return []byte("token"), nil }
	_, _, err := config.Load(flags, []byte(s.File), func(name string) string { return s.Env[name] }, token)
	return text(err)
}

func (s settings) agent() string {
	if len(s.Agent) == 0 {
		return ""
	}
	file := func(string) ([]byte, error) { return []byte(s.File), nil }
	_, err := config.LoadAgent(value(s.Agent, "--config"), value(s.Agent, "--cluster-cidr"), file)
	return text(err)
}

// value is that of the flag's last occurrence, as the programs take it.
func value(arguments []string, flag string) (last string) {
	for _, argument := range arguments {
		if given, ok := strings.CutPrefix(argument, flag+"="); ok {
			last = given
		}
	}
	return last
}

func number(arguments []string, flag string) int {
	n, _ := strconv.Atoi(value(arguments, flag)) // without the flag: 0, which is not given
	return n
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
