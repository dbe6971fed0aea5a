{{- define "lockproxy.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lockproxy.selector" -}}
app.kubernetes.io/name: lockproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockproxy.labels" -}}
{{ include "lockproxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* The port of the setting tls-listen; empty: there is none. */ -}}
{{- define "lockproxy.tlsPort" -}}
{{- range $name, $value := .Values.settings -}}
{{- if eq ($name | lower | replace "_" "-") "tls-listen" -}}
{{- regexFind "[0-9]+$" (include "lockproxy.value" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A value of a setting as lockproxy reads it: YAML has made a boolean of no, and a list of [a, b]; Helm a float of 1000000. */ -}}
{{- define "lockproxy.value" -}}
{{- if kindIs "bool" . -}}
{{- ternary "yes" "no" . -}}
{{- else if kindIs "float64" . -}}
{{- if eq . (floor .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- else if kindIs "slice" . -}}
{{- join "," . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}
