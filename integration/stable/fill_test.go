package stable

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// filled is a value of which nothing is empty, so that its JSON leaves nothing out: lists have one element.
func filled[T any]() (value T) {
	fill(reflect.ValueOf(&value).Elem(), 8)
	return value
}

// fill fills v, and what is in it so many levels deep: a quorum's nodes have a lock each, which has nodes.
func fill(v reflect.Value, deep int) {
	if deep == 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a text that is no UTF-8: \xff")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(time.Second))
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), deep-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), deep-1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1795193404, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() || v.Type().Field(i).Anonymous {
				fill(v.Field(i), deep-1)
			}
		}
	}
}

// fieldsIn are the fields in a JSON text, each with the names of those that it is in and the type of its value.
func fieldsIn(t *testing.T, text []byte) []string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	found := map[string]bool{}
	walk(value, "", found)
	return slices.Sorted(maps.Keys(found))
}

func walk(value any, path string, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, of := range v {
			walk(of, path+"."+name, found)
		}
	case []any:
		for _, of := range v {
			walk(of, path+"[]", found)
		}
	default:
		kind := map[string]string{"float64": "number", "bool": "boolean", "string": "string"}[fmt.Sprintf("%T", v)]
		found[strings.TrimPrefix(path, ".")+": "+kind] = true
	}
}
